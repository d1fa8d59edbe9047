"""The file ``authors`` of a store: kept over restarts, and worth no error."""

from __future__ import annotations

import errno
import logging
from random import Random

import numpy as np
import pytest

from nyala.engine.commit.authors_file import NAME, AuthorsFile, unpack_authors
from nyala.engine.commit.commit_authors import CommitAuthors
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.schemas.errors import UnavailableError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.doubles.machines import OPTIONS, Machine
from tests.doubles.waiting import until
from tests.engine.subject import SCHEMA, batch


class Place:
    """A place of one document."""

    def __init__(self) -> None:
        self.document: bytes | None = None
        self.error: Exception | None = None
        self.writes = 0

    def read_aside(self, name: str) -> bytes | None:
        assert name == NAME
        if self.error:
            raise self.error
        return self.document

    def write_aside(self, name: str, document: bytes) -> None:
        assert name == NAME
        if self.error:
            raise self.error
        self.writes += 1
        self.document = document


class Kept:
    """The memory and the file of a store that opens when its newest commit is that of ``newest``."""

    def __init__(self, place: Place, newest: int = 1 << 62) -> None:
        self.now = 0.0
        self.authors = CommitAuthors()
        self.file = AuthorsFile(place, self.authors, newest, elapsed=lambda: self.now)

    def add(self, timestamp: int, name: str) -> None:
        self.authors.add((timestamp, ("upsert", name, 3)))

    def users(self) -> dict[int, str]:
        found = self.file.authored()
        return {
            timestamp: origin[1]
            for timestamp, origin in zip(found.timestamps.tolist(), found.at(found.timestamps, 3), strict=True)
            if origin
        }


def test_it_is_written_at_most_every_ten_seconds_while_there_are_commits() -> None:
    place = Place()
    kept = Kept(place)
    for second in range(30):
        kept.now = float(second)
        kept.file.save_if_due()
    assert place.writes == 0
    kept.add(1, "ann")
    kept.file.save_if_due()
    assert place.writes == 1
    for second in range(30, 45):
        kept.now = float(second)
        kept.add(second, "ann")
        kept.file.save_if_due()
    assert place.writes == 2
    kept.file.save()
    kept.file.save()
    assert place.writes == 3
    assert Kept(place).users() == kept.users()


def test_what_came_before_stays() -> None:
    place = Place()
    first = Kept(place)
    first.add(1, "ann")
    first.file.save()
    second = Kept(place)
    second.add(2, "bob")
    second.file.save()
    third = Kept(place)
    third.file.save()
    assert place.writes == 2
    assert third.users() == {1: "ann", 2: "bob"}


def test_commits_that_a_crash_undid_are_not_read() -> None:
    place = Place()
    first = Kept(place)
    for timestamp in (1, 2, 3):
        first.add(timestamp, "ann")
    first.file.save()
    second = Kept(place, newest=2)
    second.add(3, "bob")
    assert second.users() == {1: "ann", 2: "ann", 3: "bob"}


def test_a_failure_is_logged_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    place = Place()
    kept = Kept(place)
    assert kept.users() == {}
    kept.add(1, "ann")
    place.error = OSError(errno.EIO, "broken")
    kept.file.save()
    kept.file.save()
    assert [record.name for record in caplog.records] == ["nyala.commits"]
    place.error = None
    kept.file.save()
    assert Kept(place).users() == {1: "ann"}


def test_a_bucket_that_does_not_answer_loses_nothing() -> None:
    place = Place()
    first = Kept(place)
    first.add(1, "ann")
    first.file.save()
    second = Kept(place)
    second.add(2, "bob")
    place.error = UnavailableError("away")
    second.file.save()  # what the file has is not known
    with pytest.raises(UnavailableError):
        second.file.authored()
    place.error = None
    second.file.save()
    assert Kept(place).users() == {1: "ann", 2: "bob"}


# In a store

OFF = StoreOptions(maintenance="off")


def write(store: Store, number: int) -> int:
    return store.write(WriteCommand(table="t", op=Operation.INSERT), batch([(number, 1, "x")])).timestamp


def make(fs: MemoryFileSystem) -> Store:
    store = Store.open(fs, OFF)
    store.create_table(TableDefinition.from_arrow("t", SCHEMA, [SCHEMA.names[0]]))
    return store


def operations(store: Store) -> list[str | None]:
    return store.commits("t").column("operation").to_pylist()


def bytes_of(fs: MemoryFileSystem) -> bytes:
    file = fs.open(NAME)
    try:
        return file.pread(0, file.size)
    finally:
        file.close()


def put(fs: MemoryFileSystem, document: bytes) -> None:
    fs.unlink(NAME)
    file = fs.create(NAME)
    file.append(document)
    file.sync()
    file.close()
    fs.sync_directory("")


@pytest.fixture
def closed() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    with make(fs) as store:
        write(store, 1)
        write(store, 2)
    return fs


def test_it_survives_a_restart(closed: MemoryFileSystem) -> None:
    with Store.open(closed, OFF) as store:
        write(store, 3)
        assert operations(store) == ["insert"] * 3
    with Store.open(closed, OFF) as store:
        assert operations(store) == ["insert"] * 3
    assert verify_store(closed).is_sound


def test_a_store_without_commits_writes_none(closed: MemoryFileSystem) -> None:
    closed.unlink(NAME)
    with Store.open(closed, OFF) as store:
        assert operations(store) == [None, None]
    assert not closed.exists(NAME)
    assert verify_store(closed).is_sound


def test_damage_costs_the_names_only(closed: MemoryFileSystem, caplog: pytest.LogCaptureFixture) -> None:
    document = bytearray(bytes_of(closed))
    for place in (3, len(document) // 2, len(document) - 1):
        damaged = document.copy()
        damaged[place] ^= 1
        put(closed, bytes(damaged))
        (problem,) = verify_store(closed).problems
        assert problem.startswith("CORRUPTION: authors") and "the store opens" in problem
        with Store.open(closed, OFF) as store:
            assert operations(store) == [None, None]
            assert store.health().status == "ok"
    assert {record.levelno for record in caplog.records if record.name == "nyala.commits"} == {logging.WARNING}
    with Store.open(closed, OFF) as store:
        write(store, 3)
    assert verify_store(closed).is_sound
    with Store.open(closed, OFF) as store:
        assert operations(store) == [None, None, "insert"]


def test_a_later_version_costs_the_names_only(closed: MemoryFileSystem) -> None:
    from tests.format.test_authors_golden import document

    put(closed, document(b"of the future", 2))
    report = verify_store(closed)
    assert report.is_sound and any("version 2" in note for note in report.notes)
    with Store.open(closed, OFF) as store:
        assert operations(store) == [None, None]
        write(store, 3)
    with Store.open(closed, OFF) as store:
        assert operations(store) == [None, None, "insert"]


def test_a_crash_loses_names_and_never_tells_wrong_ones(closed: MemoryFileSystem) -> None:
    store = Store.open(closed, OFF)
    write(store, 3)
    image = closed.crash_image(Random(0))
    store.close()
    with Store.open(image, OFF) as other:
        assert operations(other) == ["insert", "insert", None]


@pytest.mark.parametrize("nth", range(1, 12))
def test_a_crash_while_it_is_written_leaves_the_former_or_the_new_one(closed: MemoryFileSystem, nth: int) -> None:
    store = Store.open(FaultyFileSystem(closed, [FaultRule(path=f"{NAME}*", nth=nth, sticky=True)]), OFF)
    write(store, 3)
    store.close()  # no error: the log has all rows
    for seed in range(4):
        image = closed.crash_image(Random(seed))
        lasts = len(unpack_authors(bytes_of(image)).timestamps)
        assert lasts in (2, 3)
        with Store.open(image, OFF) as opened:
            assert operations(opened) == ["insert", "insert", "insert" if lasts == 3 else None]


def test_maintenance_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nyala.engine.commit.authors_file._SAVE_SECONDS", 0.0)
    fs = MemoryFileSystem()
    with Store.open(fs, StoreOptions()) as store:
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, [SCHEMA.names[0]]))
        stamp = write(store, 1)
        until(lambda: fs.exists(NAME))
        table_id = store.describe_table("t").table_id
        assert unpack_authors(bytes_of(fs)).at(np.array([stamp]), table_id) == [("insert", "", table_id)]


def test_a_bucket_has_it() -> None:
    machine = Machine()
    with Store.open(machine.home(), OPTIONS) as store:
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, [SCHEMA.names[0]]))
        write(store, 1)
    with Store.open(machine.other().home(), OPTIONS) as store:
        assert operations(store) == ["insert"]
        write(store, 2)
    assert verify_bucket(machine.home()).is_sound
    object_ = f"stores/a/{NAME}"
    assert len(unpack_authors(machine.bucket.get(object_)).timestamps) == 2
    machine.bucket.put(object_, machine.bucket.get(object_)[:-1])
    (problem,) = verify_bucket(machine.home()).problems
    assert "authors" in problem
    with Store.open(machine.home(), OPTIONS) as store:
        assert operations(store) == [None, None]


def test_who_lost_the_bucket_writes_none() -> None:
    machine = Machine()
    former = Store.open(machine.home(), OPTIONS)
    former.create_table(TableDefinition.from_arrow("t", SCHEMA, [SCHEMA.names[0]]))
    write(former, 1)
    with Store.open(machine.other().home(), OPTIONS) as store:
        write(store, 2)
    former.close()
    with Store.open(machine.home(), OPTIONS) as store:
        assert operations(store) == [None, "insert"]
