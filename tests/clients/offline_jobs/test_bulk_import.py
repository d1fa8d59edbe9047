"""Bulk import through the front door: embedded and over Flight, with threads and with processes."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.api.connect import connect
from nyala.clients.api.database import Database
from nyala.engine.fs.arrow import ArrowFileSystem
from nyala.engine.home.opening import home_at
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.schemas.errors import AlreadyPresentError, InvalidArgumentError, NotFoundError
from nyala.schemas.store.bulk import ImportBegin, ImportCommit

ROWS = pa.table(
    {
        "id": pa.array([n * 37 % 5_000 for n in range(5_000)], pa.int64()),
        "city": pa.array([f"city {n % 9}" for n in range(5_000)]),
        "at": pa.array(range(5_000), pa.timestamp("us")),
    }
)


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with Store.open(home, StoreOptions(maintenance="off")) as opened:
        yield opened


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory of Parquet files with the rows, one of them in a directory below."""
    directory = tmp_path / "parquet"
    (directory / "more").mkdir(parents=True)
    pq.write_table(ROWS.slice(0, 3_000), directory / "a.parquet", row_group_size=1_000)
    pq.write_table(ROWS.slice(3_000), directory / "more" / "b.parquet")
    return directory


def cities(db: Database) -> nyala.Table:
    return db.create_table("cities", ROWS.schema, ["id"], partition_by=[nyala.hash("id", buckets=3)])


def rows_of(table: nyala.Table) -> pa.Table:
    return table.scan(ordered=True).to_arrow()


def test_parquet_files_are_imported(db: Database, home: Path, files: Path, tmp_path: Path) -> None:
    table = cities(db)
    before = db.now()
    result = table.bulk_import(files, directory=home, scratch=tmp_path / "scratch")
    assert result.applied == 5_000 and rows_of(table).equals(ROWS.sort_by("id").cast(table.schema))
    assert not table.scan(as_of=before).to_arrow().num_rows
    assert not list((home / "imports").iterdir()) and not list((tmp_path / "scratch").iterdir())
    with pytest.raises(AlreadyPresentError, match="already in the table"):
        table.bulk_import([files / "a.parquet"], directory=home)
    changed = ROWS.slice(100, 400).set_column(1, "city", pa.array(["moved"] * 400))
    table.bulk_import(changed, directory=home, mode="upsert")
    assert table.scan(where="city = 'moved'").to_arrow().num_rows == 400 and len(rows_of(table)) == 5_000
    assert not list((home / "imports").iterdir())


def test_files_in_hidden_folders_are_left_alone(db: Database, home: Path, files: Path) -> None:
    table = cities(db)
    hidden = files / "_temporary" / "0"
    hidden.mkdir(parents=True)
    (files / "more").rename(hidden / "more")
    (files / "a.parquet").rename(files / ".a.parquet")
    pq.write_table(ROWS.slice(0, 10), files / "c.parquet")
    assert table.bulk_import(files, directory=home).applied == 10


@pytest.mark.parametrize("flushed", [False, True], ids=["in memory", "on disk"])
def test_keys_of_deleted_rows_are_free(db: Database, home: Path, files: Path, flushed: bool) -> None:
    """Their rows are kept for the history, which shows both lives; living rows among them still keep an import out."""
    table = cities(db)
    table.insert(ROWS.slice(0, 300))
    before = db.now()
    table.delete(ROWS.select(["id"]).slice(0, 299))
    if flushed:
        table.maintain("flush")
    with pytest.raises(AlreadyPresentError, match=r"^1 keys .* in the table, the first is"):
        table.bulk_import(files, directory=home)
    assert table.count() == 1
    table.delete(ROWS.select(["id"]).slice(299, 1))
    assert table.bulk_import(files, directory=home).applied == 5_000
    assert rows_of(table).equals(ROWS.sort_by("id").cast(table.schema))
    assert table.scan(as_of=before).count() == 300


def test_other_processes_can_build(db: Database, home: Path, files: Path) -> None:
    table = cities(db)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
        table.bulk_import(files, directory=home, executor=executor)
    assert rows_of(table).equals(ROWS.sort_by("id").cast(table.schema))


def test_what_cannot_be_is_said(db: Database, home: Path, files: Path, tmp_path: Path) -> None:
    table = cities(db)
    with pytest.raises(InvalidArgumentError, match="not the directory of this store"):
        table.bulk_import(files, directory=tmp_path)
    with pytest.raises(InvalidArgumentError, match="unknown import mode 'replace'"):
        table.bulk_import(files, directory=home, mode="replace")
    with pytest.raises(NotFoundError, match="there is no file"):
        table.bulk_import(tmp_path / "none.parquet", directory=home)
    (tmp_path / "x.parquet").write_bytes(b"nothing")
    with pytest.raises(InvalidArgumentError, match="is not a Parquet file"):
        table.bulk_import(tmp_path / "x.parquet", directory=home)
    with pytest.raises(InvalidArgumentError, match="city"):
        table.bulk_import({"id": [1], "city": [b"\xff"], "at": [None]}, directory=home)
    if repr(db).startswith("Database(FlightStore"):
        with pytest.raises(InvalidArgumentError, match="give the store's directory"):
            table.bulk_import(files)
    assert not list((home / "imports").iterdir()) and not rows_of(table).num_rows


def test_the_three_steps(db: Database) -> None:
    cities(db)
    store = db._store
    plan = store.import_begin(ImportBegin(table="cities", ttl_seconds=60))
    assert (plan.table, len(plan.tablets), plan.ttl_seconds) == ("cities", 3, 60)
    first = store.import_commit(ImportCommit(import_id=plan.import_id, files=()))
    assert store.import_commit(ImportCommit(import_id=plan.import_id, files=())) == first
    aborted = store.import_begin(ImportBegin(table="cities"))
    store.import_abort(aborted.import_id)
    with pytest.raises(NotFoundError, match="start a new one"):
        store.import_commit(ImportCommit(import_id=aborted.import_id, files=()))


def test_files_may_lie_in_s3(home: Path, files: Path, s3: str) -> None:
    with Store.open(home, StoreOptions(maintenance="off", import_storage=s3)) as store:
        table = cities(Database(store))
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
            assert table.bulk_import(files, executor=executor).applied == 5_000
        assert rows_of(table).equals(ROWS.sort_by("id").cast(table.schema))
        table.bulk_import({"id": [1, 9_999], "city": ["moved", "new"], "at": [None, None]}, mode="upsert")
        assert table.get(1) == {"id": 1, "city": "moved", "at": None} and table.get(9_999) is not None
        place = ArrowFileSystem.from_uri(s3)
        (own,) = place.list("imports")
        assert place.list(f"imports/{own}") == []
        left = store.import_begin(ImportBegin(table="cities")).staging
        assert place.exists(left)
    assert not (home / "imports").exists()
    with Store.open(home, StoreOptions(maintenance="off", import_storage=s3)):
        assert not place.exists(left)
    with pytest.raises(InvalidArgumentError, match="is not a valid path or URI"):
        Store.open(home, StoreOptions(maintenance="off", import_storage="nowhere"))


def test_a_file_that_is_cut_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    """A mapped one would end the process with SIGBUS: so this runs in a process of its own."""
    path = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table({"n": range(1_000_000)}), path, row_group_size=250_000, compression="none", use_dictionary=False
    )
    code = (
        "import os, sys, pyarrow as pa\n"
        "from nyala.clients.offline_jobs.bulk_import import ParquetPart\n"
        "reader = ParquetPart(sys.argv[1], (0, 1, 2, 3)).reader()\n"
        "os.truncate(sys.argv[1], 4096)\n"
        "try:\n"
        "    reader.read_all()\n"
        "except (OSError, pa.ArrowException) as error:\n"
        "    print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr


@pytest.mark.parametrize("is_remote", [False, True], ids=["embedded", "remote"])
def test_files_are_built_in_the_bucket_of_a_store(is_remote: bool, files: Path, tmp_path: Path) -> None:
    home = home_at(f"file://{tmp_path / 'bucket'}", "a")
    with Store.open(home, StoreOptions(maintenance="off", bucket_cache=str(tmp_path / "cache"))) as opened:
        server = FlightServer(opened, "grpc://127.0.0.1:0")
        with connect(f"grpc://127.0.0.1:{server.port}") if is_remote else nullcontext(Database(opened)) as db:
            table = cities(db)
            with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
                assert table.bulk_import(files, executor=executor).applied == 5_000
            assert rows_of(table).equals(ROWS.sort_by("id").cast(table.schema))
            with pytest.raises(AlreadyPresentError, match="already in the table"):
                table.bulk_import([files / "a.parquet"])
            changed = ROWS.slice(100, 400).set_column(1, "city", pa.array(["moved"] * 400))
            url = f"file://{tmp_path / 'bucket'}"
            table.bulk_import(changed, mode="upsert", directory=url, scratch=tmp_path / "scratch")
            assert table.scan(where="city = 'moved'").to_arrow().num_rows == 400 and len(rows_of(table)) == 5_000
            with pytest.raises(InvalidArgumentError, match="does not find it in the staging directory"):
                table.bulk_import(ROWS, directory=f"file://{tmp_path / 'other'}")
        server.shutdown()
    assert not home.bucket.list("stores/a/imports/"), "nothing is left behind"
    assert verify_bucket(home).is_sound
