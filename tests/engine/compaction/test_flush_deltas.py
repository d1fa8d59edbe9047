"""Flush of DeltaMemStores: writes come between its phases, its calls fail, the power goes."""

import errno
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from nyala.engine.compaction import flush_deltas as flushing
from nyala.engine.delta.file import DeltaFile, DeltaFileWriter
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.memory import PowerFailure
from nyala.engine.manifest.environment import Environment
from nyala.engine.manifest.manifest import ManifestFile
from nyala.schemas.errors import StoreError
from tests.dose import dose
from tests.doubles.faulty import FaultyFileSystem
from tests.engine.faults import calls_of, fail_once, reopened, upsert_unless_in_doubt
from tests.engine.phases import at
from tests.engine.subject import Subject

PHASES = [
    (Environment, "wait_until_settled"),
    (flushing, "_write"),
    (DeltaFileWriter, "finish"),
    (ManifestFile, "commit"),
    (DeltaFile, "__init__"),
]
IDS = [name for _, name in PHASES]


def busy(fs: Any = None) -> Subject:
    """Return a store with two rowsets on disk that have deltas, in files and in memory, and rows in memory."""
    subject, random = Subject(fs), Random(3)
    for keys in (range(10), range(5, 15)):
        subject.upsert(*keys)
        subject.flush()
    subject.some_writes(random, range(15))
    subject.flush_deltas()
    subject.some_writes(random, range(18))
    return subject


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("phase", PHASES, ids=IDS)
@pytest.mark.parametrize("seed", range(2))
def test_writes_in_the_middle_of_a_flush_of_deltas(
    monkeypatch: pytest.MonkeyPatch, phase: tuple[Any, str], before: bool, seed: int
) -> None:
    subject, random = busy(), Random(seed)

    def meanwhile() -> None:
        subject.some_writes(random, range(20), commits=5)
        subject.check()

    at(monkeypatch, phase, before, meanwhile)
    subject.flush_deltas()
    subject.check()
    random.choice([subject.restart, lambda: subject.crash(random)])()
    subject.some_writes(random, range(20))
    subject.flush_deltas()
    subject.flush()
    subject.close()


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("phase", PHASES, ids=IDS)
def test_the_power_fails_in_the_middle_of_a_flush_of_deltas(
    monkeypatch: pytest.MonkeyPatch, phase: tuple[Any, str], before: bool
) -> None:
    subject, random = busy(), Random(5)

    def meanwhile() -> None:
        subject.some_writes(random, range(20), commits=4)
        raise PowerFailure

    at(monkeypatch, phase, before, meanwhile)
    with pytest.raises(PowerFailure):
        subject.flush_deltas()
    for seed in range(4):
        after = Subject(subject.fs.crash_image(Random(seed)))  # pyright: ignore[reportAttributeAccessIssue]
        after.state, after.history = subject.state, list(subject.history)
        after.check()
        after.some_writes(random, range(20))
        after.flush_deltas()
        after.close()
    subject.store.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_each_call_of_a_flush_of_deltas_fails_once(error: int) -> None:
    for nth in range(1, calls_of(busy, Subject.flush_deltas) + 1, dose(4, 1)):
        disk = MemoryFileSystem()
        fs = FaultyFileSystem(disk)
        subject = busy(fs)
        fail_once(fs, nth, error)
        with suppress(StoreError):
            subject.flush_deltas()
        assert fs.injected
        fs.rules.clear()
        if upsert_unless_in_doubt(subject, 3, 16, v=4):
            subject.flush_deltas()
            assert not any(rowset.deltas.memory_bytes for rowset in subject.tablet.version.disk)
        subject.check()
        subject.store.close()
        reopened(subject, disk).close()


def test_a_rowset_without_deltas_gets_no_file() -> None:
    subject = Subject()
    subject.upsert(1, 2)
    subject.flush()
    subject.upsert(3)
    subject.flush()
    subject.upsert(3, v=7)
    assert subject.flush_deltas() == 1
    assert [len(rowset.deltas.stores.redo) for rowset in subject.tablet.version.disk] == [0, 1]
    assert subject.flush_deltas() == 0
    subject.close()
