"""A store in a bucket by its front doors: ``nyala.open``, ``nyala serve`` that is killed, ``verify`` and ``sweep``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.engine.home.opening import home_at
from nyala.engine.recovery.sweep_bucket import leftovers
from nyala.schemas.errors import InvalidArgumentError, NotFoundError, StoreError
from tests.doubles.s3_server import KEYS, s3_server, url_of

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
LEASE = 3.0


@pytest.fixture(params=["directory", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    if request.param == "directory":
        yield f"file://{tmp_path / 'bucket'}"
    else:
        pytest.importorskip("obstore")
        with s3_server() as address:
            yield url_of(address)


@contextmanager
def served(url: str, cache: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve the store ``a`` by a process; yield its address."""
    options = ["--set", f"lease_seconds={LEASE}", "--set", f"bucket_cache={cache}", "--set", "flush_bytes=20000"]
    command = [sys.executable, "-m", "nyala", "serve", "--data", url, "--name", "a", "--listen", "grpc://127.0.0.1:0"]
    process = subprocess.Popen([*command, "--json", *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["location"], process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_a_second_process_reads_beside_the_holder(url: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"lease_seconds": LEASE}
    with pytest.raises(NotFoundError, match="there is no store"):
        nyala.open(url, name="a", read_only=True, bucket_cache=str(tmp_path / "none"))
    with nyala.open(url, name="a", bucket_cache=str(tmp_path / "holder"), **options) as holder:
        table = holder.create_table("t", SCHEMA, "id")
        with nyala.open(url, name="a", read_only=True, bucket_cache=str(tmp_path / "reader")) as reader:
            for each in range(6):
                table.upsert([{"id": each, "v": each}])
                assert reader.table("t").count() == each + 1
                assert reader.table("t").get(each) == {"id": each, "v": each}
                if each % 2:
                    table.maintain("flush")
            moment = holder.now()
            table.delete([{"id": 0}])
            assert reader.table("t").count() == 5 and reader.table("t").scan(as_of=moment).count() == 6
            with pytest.raises(InvalidArgumentError, match="open for reading only"):
                reader.table("t").delete([{"id": 1}])
            assert reader.sql("SELECT sum(v) AS s FROM t").to_arrow().to_pylist() == [{"s": 15}]
            assert reader.commits("t").num_rows == 7
            holder.close()
            assert reader.table("t").count() == 5


def test_a_reader_of_a_bucket_that_was_put_back_reads_anew(tmp_path: Path) -> None:
    bucket, url = tmp_path / "bucket", f"file://{tmp_path / 'bucket'}"
    options: dict[str, Any] = {"lease_seconds": LEASE, "bucket_cache": str(tmp_path / "holder")}
    with nyala.open(url, name="a", **options) as holder:
        holder.create_table("t", SCHEMA, "id").upsert([{"id": 1, "v": 1}])
    shutil.copytree(bucket, tmp_path / "saved")
    with nyala.open(url, name="a", read_only=True, bucket_cache=str(tmp_path / "reader")) as reader:
        with nyala.open(url, name="a", **options) as holder:
            holder.table("t").upsert([{"id": each, "v": 2} for each in range(50)])
            holder.table("t").maintain("flush")
            assert reader.table("t").count() == 50
        shutil.rmtree(bucket)
        shutil.copytree(tmp_path / "saved", bucket)
        assert reader.table("t").count() == 1
        with nyala.open(url, name="a", **options) as holder:
            holder.table("t").upsert([{"id": 7, "v": 7}])
            holder.table("t").maintain("flush")
            assert reader.table("t").count() == 2 and reader.table("t").get(7) == {"id": 7, "v": 7}


def nyala_command(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "nyala", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_what_a_killed_server_acknowledged_is_there_elsewhere(url: str, tmp_path: Path) -> None:
    acked: dict[int, int] = {}
    tried: dict[int, int] = {}
    for life in range(2):
        cache = tmp_path / f"disk{life}"
        with served(url, cache) as (location, process), nyala.connect(location, retries=False) as db:
            table = db.create_table("t", SCHEMA, ["id"], if_not_exists=True)
            found = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
            assert all(found.get(key) in (value, tried.get(key)) for key, value in acked.items())
            acked |= found
            tried.clear()
            with suppress(StoreError):
                for turn in range(40):
                    rows = [{"id": each, "v": 1_000 * life + turn} for each in range(10 * turn, 10 * turn + 300)]
                    tried |= {row["id"]: row["v"] for row in rows}
                    if turn == 25:
                        threading.Timer(0.02, process.kill).start()
                    table.upsert(rows)
                    acked |= {row["id"]: row["v"] for row in rows}
        shutil.rmtree(cache)
    cache = str(tmp_path / "embedded")
    with nyala.open(url, name="a", create=False, lease_seconds=LEASE, bucket_cache=cache) as db:
        found = {row["id"]: row["v"] for row in db.table("t").scan().to_arrow().to_pylist()}
        assert acked and all(found.get(key) in (value, tried.get(key)) for key, value in acked.items())
    nyala_command("sweep", url, "--name", "a", "--apply")
    assert not leftovers(home_at(url, "a"))
    assert "no problems found" in nyala_command("verify", url, "--name", "a")


def test_stores_of_one_bucket_have_names(tmp_path: Path) -> None:
    url, cache = f"file://{tmp_path / 'bucket'}", str(tmp_path / "cache")
    with pytest.raises(NotFoundError, match="there is no store 'a'"):
        nyala.open(url, name="a", create=False, bucket_cache=cache)
    with nyala.open(url, name="a", bucket_cache=cache) as db:
        db.create_table("of_a", SCHEMA, ["id"])
        with pytest.raises(StoreError, match=f"the cache {cache} is in use: .*set another bucket_cache for file:.*b"):
            nyala.open(url, name="b", bucket_cache=cache)
    with nyala.open(url, name="b", bucket_cache=cache) as db:
        assert db.tables() == []
    with nyala.open(url, name="a", create=False, bucket_cache=cache) as db:
        assert db.tables() == ["of_a"]


def test_what_is_no_home_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="needs a name"):
        nyala.open(f"file://{tmp_path}/bucket")
    with pytest.raises(InvalidArgumentError, match="has no name"):
        nyala.open(tmp_path / "data", name="a")
    with pytest.raises(InvalidArgumentError, match=r"use nyala\.connect"):
        nyala.open("grpc://127.0.0.1:1", name="a")
    with pytest.raises(InvalidArgumentError, match="is not a bucket"):
        nyala.open("http://127.0.0.1/root", name="a")
    assert list(tmp_path.iterdir()) == []
