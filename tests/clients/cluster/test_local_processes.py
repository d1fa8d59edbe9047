"""One store served by several processes: asked directly and at the public address, killed, stopped, more and fewer."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api import connect, per_process
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.cluster.store import PlacedStore
from nyala.clients.flight.store import FlightStore
from nyala.clients.jobs.link import StoreLink
from nyala.clients.jobs.splits import split_table
from nyala.engine.fs.local import LocalFileSystem
from nyala.engine.manifest.manifest import read_manifest
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.store.placement import Placement
from tests.clients.cluster.processes_server import ProcessesServer, is_alive

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
COUNT = 10_000


def rows(n: int, ids: range = range(COUNT)) -> pa.Table:
    return pa.table([pa.array(ids), pa.array([n] * len(ids))], schema=SCHEMA)


def make(db: Database, name: str, buckets: int = 4) -> Table:
    return db.create_table(name, SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=buckets)])


def made_at(folder: Path) -> Iterator[ProcessesServer]:
    made = ProcessesServer(folder / "data")
    yield made
    if made.process:
        made.process.kill()
        made.process.communicate()


@pytest.fixture
def server() -> Iterator[ProcessesServer]:
    with tempfile.TemporaryDirectory() as folder:  # short: the path of a socket has few characters
        yield from made_at(Path(folder))


@pytest.fixture(scope="module")
def running() -> Iterator[ProcessesServer]:
    """A server that all tests of this file leave as it is, beside tables of their own."""
    with tempfile.TemporaryDirectory() as folder:
        for made in made_at(Path(folder)):
            made.start("--processes", "2")
            yield made


@pytest.fixture(params=["directly", "at the public address"])
def db(running: ProcessesServer, request: pytest.FixtureRequest) -> Iterator[Database]:
    with nyala.connect(running.url) if request.param == "directly" else running.front() as found:
        yield found


@pytest.fixture
def table(db: Database) -> Iterator[Table]:
    made = make(db, "t")
    yield made
    db.drop_table("t")


def test_a_client_on_this_machine_asks_the_processes(running: ProcessesServer) -> None:
    with nyala.connect(running.url) as db:
        assert isinstance(db._store, PlacedStore)
        assert db._store.servers.names == ["p0", "p1"]
        make(db, "spread", 6)
        placed = [place.server or "" for place in db.table("spread").tablets()]
        assert sorted(placed) == ["p0"] * 3 + ["p1"] * 3
        db.drop_table("spread")


def test_sockets_of_another_store_are_not_used(running: ProcessesServer) -> None:
    server = FlightStore(running.url)
    uuids = server.health().processes
    assert list(uuids) == ["p0", "p1"]
    assert connect._processes(server, {name: uuid[::-1] for name, uuid in uuids.items()}, True) is None
    assert isinstance(connect._processes(server, uuids, True), PlacedStore)


def test_sockets_that_others_may_have_made_are_not_used(
    running: ProcessesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FlightStore(running.url)
    uuids = server.health().processes
    folder = running.data / "processes"
    folder.chmod(0o720)
    try:
        assert connect._processes(server, uuids, True) is None
    finally:
        folder.chmod(0o700)
    told = Placement(servers={**server.placement().servers, "p1": (running.url,)})
    with monkeypatch.context() as patched:
        patched.setattr(server, "placement", lambda: told)
        assert not connect._is_own_socket(running.url) and connect._processes(server, uuids, True) is None
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert connect._processes(server, uuids, True) is None


def test_tasks_on_other_machines_reach_the_store(running: ProcessesServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have its public address alone; tasks of one job run here and there."""
    with nyala.connect(running.url) as db, running.front() as front:
        make(db, "parts").insert(rows(1))
        spec = ScanSpec(table="parts")
        here, there = StoreLink.to(db), StoreLink.to(front)
        cuts = [split_table(link.service, spec).splits for link in (here, there)]
        assert [{split.server for split in cut} for cut in cuts] == [{"p0", "p1"}, {None}]
        assert here.url == running.url and isinstance(here.service, PlacedStore)
        sent = pickle.loads(pickle.dumps(here))
        for reaches in (True, False):
            monkeypatch.setattr(per_process, "_all_servers", {})
            if not reaches:
                monkeypatch.setattr(connect, "_processes", lambda *_: None)
            assert isinstance(sent.service, PlacedStore) is reaches
            for cut in cuts:
                found = [number for split in cut for batch in sent.scan(split).batches for number in ids_of(batch)]
                assert sorted(found) == list(range(COUNT))
        db.drop_table("parts")


def ids_of(batch: pa.RecordBatch) -> list[int]:
    return batch["id"].to_pylist()


def test_only_this_user_reaches_the_sockets(running: ProcessesServer) -> None:
    folder = running.data / "processes"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {(folder / f"{name}.sock").stat().st_mode & 0o077 for name in ("p0", "p1")} == {0}


def test_rows_are_those_of_one_store(table: Table) -> None:
    assert table.insert(rows(1)).applied == COUNT
    with pytest.raises(nyala.RowErrors, match="ALREADY_PRESENT"):
        table.insert(rows(1, range(5)))
    assert table.upsert([{"id": 7, "n": 5}]).applied == 1
    assert table.delete({"id": [8]}).applied == 1
    assert table.get(7) == {"id": 7, "n": 5} and table.get(8) is None
    assert table.get_many([9, 8, 7, COUNT])["id"].to_pylist() == [9, 7]
    found = table.scan(ordered=True).to_arrow()
    assert found["id"].to_pylist() == [number for number in range(COUNT) if number != 8]
    assert table.scan().to_arrow().sort_by("id").equals(found)
    assert table.scan(where="n = 5").to_arrow().to_pylist() == [{"id": 7, "n": 5}]
    assert table.scan(order_by="id DESC", limit=3).to_arrow()["id"].to_pylist() == [COUNT - 1, COUNT - 2, COUNT - 3]
    sums = table.scan().aggregate({"count": ("*", "count"), "mean": ("n", "avg"), "last": ("id", "max")}).to_pylist()
    assert sums == [{"count": COUNT - 1, "mean": (COUNT + 3) / (COUNT - 1), "last": COUNT - 1}]
    assert table.stats()["live_rows"] == COUNT - 1


def test_statements_transactions_and_changes(db: Database, table: Table) -> None:
    table.insert(rows(1, range(100)))
    before = db.now()
    assert table.update_where({"n": "id"}, "id < 50").applied == 50
    with db.transaction() as transaction:
        transaction.upsert("t", rows(3, range(90, 110)))
    assert table.scan(where="n = 3 and id >= 90").count() == 20
    feed = table.changes(before).to_arrow()
    assert feed.num_rows == 50 + 20
    assert table.scan(as_of=before).aggregate({"sum": ("n", "sum")})["sum"][0].as_py() == 100
    assert table.restore(before).error_count == 0
    assert table.scan(ordered=True).to_arrow().equals(rows(1, range(100)))


def test_a_numbered_write_is_applied_once(table: Table) -> None:
    first = table.insert(rows(1), writer="w", seq=0)
    again = table.insert(rows(1), writer="w", seq=0)
    assert (first.applied, again.applied, again.error_count) == (COUNT, COUNT, 0)
    assert first.timestamp == again.timestamp
    assert table.scan().count() == COUNT


def test_what_processes_cannot_do_is_told(table: Table, db: Database, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="several servers share the table"):
        table.direct_scan(directory="/").close()
    with pytest.raises(InvalidArgumentError, match="a checkpoint cannot be made when several servers share"):
        db.checkpoint(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_health_covers_all_processes(db: Database) -> None:
    assert db.health().status == "ok"


def test_every_scan_is_one_snapshot_beside_writers(db: Database, table: Table) -> None:
    """The sum of the rows of one snapshot is the same when it is read again, whoever writes meanwhile."""
    table.insert(rows(0))
    done = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            for n in range(1, 9):
                table.upsert(rows(n))
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while not done.is_set() or not seen:
        moment = db.now()
        first = table.scan(as_of=moment, ordered=True).to_arrow()
        again = table.scan(as_of=moment).to_arrow()
        assert first["id"].to_pylist() == list(range(COUNT))
        assert again.sort_by("id").equals(first)
        seen += 1
    writer.join()
    assert not failed
    assert set(table.scan().to_arrow()["n"].to_pylist()) == {8}


def test_a_write_acknowledged_at_one_address_is_seen_at_the_other(running: ProcessesServer) -> None:
    with nyala.connect(running.url) as direct, running.front() as front:
        make(direct, "seen")
        for n in range(30):
            here, there = (direct, front) if n % 2 else (front, direct)
            here.table("seen").upsert([{"id": n, "n": n}])
            assert there.table("seen").scan().count() == n + 1
        direct.drop_table("seen")


def test_a_killed_process_comes_back_with_its_rows(server: ProcessesServer) -> None:
    server.start("--processes", "2")
    with nyala.connect(server.url) as db, server.front() as front, nyala.connect(server.url, retries=False) as hasty:
        table = make(db, "t")
        table.insert(rows(1))
        owners = {number: server_of(table, number) for number in range(40)}
        other = hasty.table("t")
        other.upsert(rows(2))
        killed = server.pids()["p1"]
        os.kill(killed, signal.SIGKILL)
        for number in [number for number, owner in owners.items() if owner == "p0"]:  # the other one keeps answering
            other.upsert([{"id": number, "n": 2}])
            assert other.get(number) == {"id": number, "n": 2}
        assert front.table("t").upsert(rows(3)).applied == COUNT  # waits for the process
        assert db.table("t").scan().aggregate({"n": ("n", "sum")})["n"][0].as_py() == 3 * COUNT
        assert server.pids()["p1"] != killed
        assert front.health().status == "ok"
    assert server.stop() == 0


def server_of(table: Table, number: int) -> str:
    cache = table._store._cache.of(table.name)  # type: ignore[attr-defined]
    (owner,) = cache.by_server(pa.record_batch([pa.array([number])], schema=pa.schema([SCHEMA[0]])))
    return owner


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_clean_in_all_processes(server: ProcessesServer, number: signal.Signals) -> None:
    server.start("--processes", "2")
    with nyala.connect(server.url) as db:
        make(db, "t").insert(rows(1))
    began, pids = time.monotonic(), server.pids()
    assert server.stop(number) == 0
    assert time.monotonic() - began < 15
    assert sorted(pids) == ["p0", "p1"] and not any(map(is_alive, pids.values()))
    for directory in (server.data, server.data / "processes" / "p1"):
        assert read_manifest(LocalFileSystem(directory)).clean_stop is not None


def test_processes_end_with_their_parent(server: ProcessesServer) -> None:
    server.start("--processes", "2")
    with server.front() as front:
        make(front, "t").insert(rows(1))
    pids = server.pids()
    server.stop(signal.SIGKILL)
    server.start()  # waits for them
    assert not any(map(is_alive, pids.values()))
    with nyala.connect(server.url) as db:
        assert db.table("t").scan(ordered=True).to_arrow().equals(rows(1))


def test_more_and_fewer_processes(server: ProcessesServer) -> None:
    with nyala.open(server.data) as db:  # a store of one process
        make(db, "t", 5).insert(rows(1))
        db.create_table("whole", SCHEMA, ["id"]).insert(rows(2))
        moment = db.now()
        db.table("t").upsert(rows(3, range(50)))
    for options, count in ((["--processes", "3"], 3), ([], 3), (["--processes", "2"], 2)):
        server.start(*options)
        with nyala.connect(server.url) as db:
            check_rows(db, moment)
            spread = [place.server for place in db.table("t").tablets()]
            assert {spread.count(f"p{number}") for number in range(count)} <= {5 // count, -(-5 // count)}
        assert server.stop() == 0
    check_offline(server.data, moment)
    server.start("--processes", "1")
    with nyala.connect(server.url) as db:
        assert isinstance(db._store, FlightStore)
        check_rows(db, moment)
    assert server.stop() == 0
    assert not (server.data / "processes").exists()
    with nyala.open(server.data) as db:
        check_rows(db, moment)


def check_rows(db: Database, moment: int) -> None:
    wanted = pa.concat_tables([rows(3, range(50)), rows(1, range(50, COUNT))])
    assert db.table("t").scan(ordered=True).to_arrow().equals(wanted)
    assert db.table("t").scan(ordered=True, as_of=moment).to_arrow().equals(rows(1))
    assert db.table("whole").scan(ordered=True).to_arrow().equals(rows(2))
    assert db.health().status == "ok"


def check_offline(data: Path, moment: int) -> None:
    """What opens the directory itself covers all parts."""
    with nyala.open(data) as db:
        check_rows(db, moment)
        db.table("t").upsert(rows(3, range(50)))
    done = nyala_command("verify", str(data))
    assert done.returncode == 0 and done.stdout.count("no problems found") == 2
    assert "the process p1, in" in done.stderr
    told = nyala_command("stats", "t", "--data", str(data), "--json")
    assert json.loads(told.stdout)["live_rows"] == COUNT, told.stderr


def nyala_command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "nyala", *words], capture_output=True, text=True, timeout=120)


def test_a_process_that_cannot_start_ends_the_server(server: ProcessesServer) -> None:
    server.start("--processes", "2")
    server.stop()
    manifest = server.data / "processes" / "p1" / "manifest"
    manifest.write_bytes(b"x" * 100)
    (server.data / "processes" / "p1" / "manifest.copy").unlink()
    process = server.begin()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 9 and not out
    assert "CORRUPTION" in err and "the process p1 could not start: it ended with code 11" in err


def test_a_second_server_is_refused(running: ProcessesServer) -> None:
    second = ProcessesServer(running.data)
    process = second.begin("--processes", "2")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 9 and "another process has the store" in err


@pytest.mark.parametrize(("url", "said"), [("", "cannot be combined"), ("memory://b/root", "served by one process")])
def test_stores_that_cannot_have_processes(url: str, said: str, tmp_path: Path) -> None:
    data = url or str(tmp_path)
    done = nyala_command("serve", "--data", data, "--processes", "2", "--placement", str(tmp_path / "x"), "--name", "a")
    assert done.returncode == 3 and said in done.stderr


def test_a_path_too_long_for_a_socket_is_told(tmp_path: Path) -> None:
    done = nyala_command("serve", "--data", str(tmp_path / ("x" * 90)), "--processes", "2")
    assert done.returncode == 3 and "too long for --processes" in done.stderr
    assert UnavailableError.code not in done.stderr
