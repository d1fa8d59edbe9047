"""What is done on several servers ends, also where the system has no room for another thread."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.cluster import reading
from tests.clients.cluster.cluster import Cluster
from tests.doubles.waiting import until

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.int64())])


@pytest.fixture
def db(cluster: Cluster) -> Database:
    made = cluster.connect()
    made.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=8)])
    made.table("t").insert(pa.table([range(40_000), range(40_000)], schema=SCHEMA))
    return made


def refuse(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let no thread of these names start."""
    start = threading.Thread.start

    def fail(self: threading.Thread) -> None:
        if self.name in names:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", fail)


def running(prefix: str) -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith(prefix)]


def test_a_scan_that_cannot_begin_leaves_no_thread(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_WAITING_BATCHES", 1)
    refuse(monkeypatch, "nyala-read-b")
    with pytest.raises(RuntimeError, match="can't start"):
        db.table("t").scan().to_arrow()
    until(lambda: not running("nyala-read"), seconds=10)


def test_a_part_that_cannot_be_staged_everywhere_is_given_up(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "nyala-stage_1")
    errors: list[BaseException] = []

    def change() -> None:
        try:
            with db.transaction() as changes:
                changes.upsert("t", pa.table([range(100), range(100)], schema=SCHEMA))
        except RuntimeError as error:
            errors.append(error)

    changing = threading.Thread(target=change, daemon=True)
    changing.start()
    changing.join(20)
    assert not changing.is_alive() and errors
    assert not running("nyala-stage")
