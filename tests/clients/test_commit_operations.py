"""``commits`` tells by which operation each commit was made: in this process, over restarts and after kill -9."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.engine.commit.authors_file import NAME, unpack_authors
from nyala.schemas.message import Message
from nyala.schemas.rows import commits as commits_schema
from nyala.schemas.rows.commits import COMMITS_SCHEMA, commits_of, commits_table, pages_of

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.int64())])


def operations(db: nyala.Database, name: str = "t") -> list[str | None]:
    return db.commits(name)["operation"].to_pylist()


def rows(*keys: int) -> list[dict[str, int]]:
    return [{"id": key, "x": key} for key in keys]


def test_every_operation_of_a_write(tmp_path: Path) -> None:
    made: list[str] = []
    with nyala.open(tmp_path / "store") as db:
        table = db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
        for count, as_arrow in ((1, False), (2, False), (2, True)):
            for operation, keys in (
                ("insert", (1, 2)),
                ("insert_ignore", (2, 3)),
                ("upsert", (3, 4)),
                ("upsert_ignore", (3, 4)),
                ("update", (3,)),
                ("update_ignore", (3, 9)),
                ("delete_ignore", (1, 2)),
                ("delete", (3,)),
            ):
                sent = rows(*keys[:count])
                if operation.startswith("delete"):
                    sent = [{"id": row["id"]} for row in sent]
                if getattr(table, operation)(pa.Table.from_pylist(sent) if as_arrow else sent).applied:
                    made.append(operation)
            if table.delete_where("true").applied:
                made.append("delete_where")
    with nyala.open(tmp_path / "store") as db:
        assert operations(db) == made and set(made) >= {"insert", "upsert", "update", "delete", "delete_ignore"}
        assert db.commits("t")["user"].null_count == len(made)


def test_statements_transactions_and_imports(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(1000, 2000), "x": range(1000)}, SCHEMA), tmp_path / "rows.parquet")
    with nyala.open(tmp_path / "store") as db:
        table = db.create_table("t", SCHEMA, ["id"])
        table.insert(rows(1, 2, 3))
        table.update_where({"x": "x + 1"}, "id = 1")
        table.delete_where("id = 2")
        table.restore(table.last_change() - 1)
        with db.transaction() as work:
            work.delete("t", [{"id": 1}])
            work.insert("t", rows(9))
        table.bulk_import(tmp_path / "rows.parquet")
        expected = ["insert", "update_where", "delete_where", "restore", "transaction", "bulk_import"]
        assert operations(db) == expected
    with nyala.open(tmp_path / "store") as db:
        assert operations(db) == expected


def test_large_batches_that_go_to_the_disk_at_once(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store", direct_load_bytes=1 << 10) as db:
        table = db.create_table("t", SCHEMA, ["id"])
        table.upsert(pa.table({"id": range(10_000), "x": range(10_000)}, SCHEMA))
        assert operations(db) == ["upsert"]


def test_the_newest_commits_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nyala.engine.commit.commit_authors.CommitAuthors.__init__.__defaults__", (4,))
    monkeypatch.setattr("nyala.engine.commit.authors_file.COMMITS_KEPT", 4)
    with nyala.open(tmp_path / "store") as db:
        table = db.create_table("t", SCHEMA, ["id"])
        for number in range(3):
            table.insert(rows(number))
    with nyala.open(tmp_path / "store") as db:
        for number in range(3):
            db.table("t").upsert(rows(number))
        assert operations(db) == [None, None, "insert", "upsert", "upsert", "upsert"]


_KILLED = """
import os, signal, sys
import nyala, nyala.engine.commit.authors_file as file
file._SAVE_SECONDS = float(sys.argv[2])
with nyala.open(sys.argv[1]) as db:
    table = db.table("t")
    for number in range(5):
        table.upsert([{"id": number, "x": number}])
    if file._SAVE_SECONDS == 0:
        import time
        time.sleep(4)
    print("written", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("seconds", [600, 0])
def test_kill_9_costs_at_most_the_names_of_the_last_seconds(tmp_path: Path, seconds: int) -> None:
    with nyala.open(tmp_path / "store") as db:
        db.create_table("t", SCHEMA, ["id"]).insert(rows(100))
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path / "store"), str(seconds)], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL and b"written" in killed.stdout, killed.stderr
    with nyala.open(tmp_path / "store") as db:
        assert operations(db) == ["insert", *(["upsert" if seconds == 0 else None] * 5)]
        assert db.table("t").scan().count() == 6


def test_a_checkpoint_has_them(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store") as db:
        table = db.create_table("t", SCHEMA, ["id"])
        table.insert(rows(1))
        db.checkpoint(tmp_path / "copy")
        table.upsert(rows(2))
        db.checkpoint(tmp_path / "copy")
    with nyala.open(tmp_path / "copy") as db:
        assert operations(db) == ["insert", "upsert"]


def test_an_encrypted_store_hides_the_names(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(secrets.token_hex(32))
    (tmp_path / "key").chmod(0o600)
    with nyala.open(tmp_path / "store", key_file=str(tmp_path / "key")) as db:
        db.create_table("t", SCHEMA, ["id"]).insert(rows(1))
    assert b"insert" not in (tmp_path / "store" / NAME).read_bytes()
    with nyala.open(tmp_path / "store", key_file=str(tmp_path / "key")) as db:
        assert operations(db) == ["insert"]


def test_the_file_of_a_directory_is_small(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store") as db:
        result = db.create_table("t", SCHEMA, ["id"]).insert(rows(1))
    document = (tmp_path / "store" / NAME).read_bytes()
    assert len(document) < 200 and not (tmp_path / "store" / f"{NAME}.new").exists()
    authored = unpack_authors(document)
    assert authored.timestamps.tolist() == [result.timestamp] and authored.origins[0][:2] == ("insert", "")


# Clients and servers of other versions

FORMER = "timestamp", "writer", "transaction", "inserted", "updated", "deleted"


class FormerPage(Message):
    """The page of version 0.1."""

    timestamp: list[int]
    writer: list[str | None]
    transaction: list[str | None]
    inserted: list[int]
    updated: list[int]
    deleted: list[int]


def some_commits() -> pa.Table:
    return commits_table(
        {
            "timestamp": [1 << 12, 2 << 12],
            "writer": ["w", None],
            "transaction": [None, "t"],
            "inserted": [1, 2],
            "updated": [3, 4],
            "deleted": [5, 6],
            "operation": ["insert", None],
            "user": [None, "ann"],
        }
    )


def test_pages_are_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits_schema, "_PAGE_COMMITS", 1)
    assert commits_of(pages_of(some_commits())).equals(some_commits())
    nothing = COMMITS_SCHEMA.empty_table()
    assert commits_of(pages_of(nothing)).equals(nothing)


def test_a_former_client_takes_the_pages_of_this_server() -> None:
    (page,) = pages_of(some_commits())
    seen = FormerPage.model_validate_json(page)
    assert {name: getattr(seen, name) for name in FORMER} == some_commits().select(list(FORMER)).to_pydict()


@pytest.mark.parametrize("count", [0, 2])
def test_this_client_takes_the_pages_of_a_former_server(count: int) -> None:
    sent = some_commits().slice(0, count)
    page = FormerPage(**sent.select(list(FORMER)).to_pydict()).model_dump_json().encode()
    found = commits_of([page])
    assert found.schema == COMMITS_SCHEMA and found.num_rows == count
    assert found.select(list(FORMER)).equals(sent.select(list(FORMER)))
    assert found["operation"].null_count == found["user"].null_count == count
