"""Two server processes that share their tables: loaded, scanned while they are written, killed, started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.flight import server_wait
from nyala.schemas.errors import UnavailableError

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
COUNT = 60_000


class Servers:
    """Processes of ``nyala serve``, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "servers.toml"
        lines = [f'{name} = "grpc+unix://{folder}/{name}.sock"' for name in "ab"]
        self.file.write_text("\n".join(["[servers]", *lines, "", "[tables.one]", 'servers = ["b"]', ""]))
        self.running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str) -> None:
        (self.folder / f"{name}.sock").unlink(missing_ok=True)
        command = [sys.executable, "-m", "nyala", "serve", "--data", str(self.folder / name), "--json"]
        process = subprocess.Popen(
            [*command, "--placement", str(self.file), "--name", name], stdout=subprocess.PIPE, text=True
        )
        self.running[name] = process
        assert process.stdout
        assert json.loads(process.stdout.readline())["pid"] == process.pid

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        process = self.running.pop(name)
        process.send_signal(number)
        process.communicate()

    def url(self, name: str) -> str:
        return f"grpc+unix://{self.folder}/{name}.sock"


@pytest.fixture
def servers() -> Iterator[Servers]:
    with tempfile.TemporaryDirectory() as folder:
        made = Servers(Path(folder))
        for name in "ab":
            made.start(name)
        yield made
        for name in list(made.running):
            made.kill(name)


def rows(n: int) -> pa.Table:
    return pa.table([pa.array(range(COUNT)), pa.array([n] * COUNT)], schema=SCHEMA)


def test_load_scan_kill_and_go_on(servers: Servers) -> None:
    db = nyala.connect(servers.url("a"))
    table = db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=5)])
    table.insert(rows(0))
    check_scans_beside_writes(table)

    listed = tablets_of(servers, "t")
    assert {place["server"] for place in listed} == {"a", "b"}
    assert len(listed) == 5

    number = next(place["tablet"] for place in listed if place["server"] == "a")
    assert f"tablet {number} of t is on b" in nyala_tablet(
        servers, "move", "t", str(number), "--to", "b", "--from", "a"
    )
    check_scans_beside_writes(table)
    assert {place["server"] for place in tablets_of(servers, "t")} == {"a", "b"}

    servers.kill("b")
    with nyala.connect(servers.url("a"), retries=False) as other, pytest.raises(UnavailableError):
        other.table("t").scan().count()
    servers.start("b")
    found = nyala.connect(placement=servers.file).table("t").scan(ordered=True).to_arrow()
    assert found["id"].to_pylist() == list(range(COUNT))
    assert set(found["n"].to_pylist()) == {4}
    db.close()
    check_a_table_that_is_on_one(servers)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_scan_goes_on_when_one_of_the_servers_is_killed(
    servers: Servers, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_wait, "_PAUSES", (0.2,) * 600)
    schema = pa.schema([("id", pa.int64()), ("blob", pa.binary())])
    with nyala.connect(servers.url("a")) as db:
        table = db.create_table("t", schema, ["id"], partition_by=[nyala.hash("id", buckets=5)])
        numbers = list(range(COUNT))
        blobs = pa.array([os.urandom(500) for _ in numbers])  # more than fits into the buffers on the way
        table.insert(pa.table([numbers, blobs], schema=schema))
        moment = db.now()
        coming = iter(table.scan(as_of=moment, ordered=ordered))
        found = [next(coming)]
        for name in "ba":
            servers.kill(name)
            starting = threading.Thread(target=servers.start, args=(name,))
            starting.start()
            found.append(next(coming))
            starting.join()
        rows = pa.Table.from_batches([*found, *coming])
        rows = rows if ordered else rows.sort_by("id")
        assert rows["id"].to_pylist() == numbers and rows["blob"].combine_chunks().equals(blobs)


def check_scans_beside_writes(table: Table) -> None:
    """Every scan shows all rows, each once, while all of them are changed; and shows the same again at its moment."""
    done = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            for n in range(1, 5):
                table.upsert(rows(n))
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while not done.is_set() or not seen:
        snapshot = table._store.now()
        once = table.scan(as_of=snapshot).aggregate({"n": ("*", "count"), "sum": ("n", "sum"), "ids": ("id", "sum")})
        again = table.scan(as_of=snapshot).to_arrow()
        assert once["n"][0].as_py() == again.num_rows == COUNT
        assert once["ids"][0].as_py() == COUNT * (COUNT - 1) // 2
        assert once["sum"][0].as_py() == sum(again["n"].to_pylist())
        seen += 1
    writer.join()
    assert not failed


def check_a_table_that_is_on_one(servers: Servers) -> None:
    with nyala.connect(servers.url("a")) as db:
        made = db.create_table("one", SCHEMA, ["id"])
        made.insert(rows(1))
        assert [place.server for place in made.tablets()] == ["b"]
        assert made.get(77) == {"id": 77, "n": 1}


def tablets_of(servers: Servers, table: str) -> list[dict]:
    return json.loads(nyala_tablet(servers, "list", table, "--json"))


def nyala_tablet(servers: Servers, *arguments: str) -> str:
    command = [sys.executable, "-m", "nyala", "tablet", *arguments, "--url", servers.url("b")]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_server_that_comes_later_has_what_is_made_from_then_on(servers: Servers) -> None:
    with nyala.connect(servers.url("a")) as db:
        old = db.create_table("old", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
        old.insert(rows(1))
    text = servers.file.read_text()
    servers.file.write_text(text.replace("[servers]", f'[servers]\nc = "{servers.url("c")}"'))
    for name in "ab":
        servers.kill(name, signal.SIGTERM)
    for name in "abc":
        servers.start(name)
    with nyala.connect(placement=servers.file) as db:
        check_old_and_new(db)


def check_old_and_new(db: Database) -> None:
    old = db.table("old")
    old.upsert(rows(2))
    assert old.scan().aggregate({"n": ("n", "sum")})["n"][0].as_py() == 2 * COUNT
    assert {place.server for place in old.tablets()} == {"a", "b"}
    with pytest.raises(nyala.AlreadyPresentError):
        db.create_table("old", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
    old.alter().add_column("m", "int32").apply()
    with pytest.raises(nyala.InvalidArgumentError, match="is not on c"):
        old.alter().add_range_partition(0, 10).apply()
    new = db.create_table("new", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=6)])
    new.insert(rows(1))
    assert {place.server for place in new.tablets()} == {"a", "b", "c"}
    assert new.scan(ordered=True, limit=10).to_arrow()["id"].to_pylist() == list(range(10))
    assert db.tables() == ["new", "old"]
    db.drop_table("old")
