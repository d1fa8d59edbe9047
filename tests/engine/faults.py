"""Calls of the disk that fail in background work, and what such a failure must leave behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.filesystem import FileSystem
from nyala.schemas.errors import UnavailableError
from nyala.schemas.rows.write import WriteCommand
from tests.doubles.faulty import EVERY_CALL, READS, FaultRule, FaultyFileSystem

from .subject import Subject, batch

CHANGES = EVERY_CALL - READS
"""The calls that are counted and fail."""


def calls_of(make: Callable[[FaultyFileSystem], Subject], work: Callable[[Subject], Any]) -> int:
    """Return how many calls of the disk, reads left out, ``work`` makes on a store of ``make``."""
    fs = FaultyFileSystem(MemoryFileSystem(), [FaultRule(calls=CHANGES, nth=1 << 30)])
    subject = make(fs)
    before = fs._matched[0]
    work(subject)
    calls = fs._matched[0] - before
    subject.store.close()
    return calls


def fail_once(fs: FaultyFileSystem, nth: int, error: int) -> None:
    """Let the ``nth`` call from now on, reads left out, fail with an errno."""
    fs.rules.append(FaultRule(calls=CHANGES, nth=nth, error=error))
    fs._matched.append(0)


def upsert_unless_in_doubt(subject: Subject, *keys: int, v: int) -> bool:
    """Write rows; when the manifest on disk is in doubt they must be refused. Return whether they were written."""
    if subject.environment.manifest.failed is None:
        subject.upsert(*keys, v=v)
        return True
    with pytest.raises(UnavailableError, match="read-only"):
        subject.store.write(WriteCommand(table="t"), batch([(key, v, "s") for key in keys]))
    return False


def reopened(subject: Subject, disk: FileSystem) -> Subject:
    """Open what is on ``disk`` again, which must show what ``subject`` did."""
    after = Subject(disk)
    after.state, after.history = subject.state, list(subject.history)
    return after


def assert_no_orphans(subject: Subject, disk: FileSystem) -> None:
    """Compare the files of the tablet with those that the manifest names."""
    entries = [entry for table in subject.environment.manifest.current.tables for entry in table.tablets]
    named = {name for entry in entries for rowset in entry.rowsets for name in rowset.file_names}
    assert set(disk.list("tablets/2")) == named
