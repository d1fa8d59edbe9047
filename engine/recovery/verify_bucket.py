"""Check of a store in a bucket: every byte of its log, its manifest and its files. Claims nothing, changes nothing."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from ...schemas.errors import UnavailableError
from ..commit.authors_file import NAME as AUTHORS
from ..home.bucket import BucketHome
from ..home.pinned import read_pinned
from ..wal.slots import check_slots
from ..wal.slots.reader import newest_slot
from .bucket_state import BucketState, state_of
from .verify import Progress, VerifyReport, attempt, verify_authors, verify_records, verify_tables

_LOOK_SECONDS = 1.0
"""How often to look whether somebody writes to the log: then what was read so far is worth nothing."""


def verify_bucket(home: BucketHome, progress: Progress | None = None) -> VerifyReport:
    """Check a store in a bucket that no process has.

    Raises:
        NotFoundError: there is no such store.
        UnavailableError: a process has it, or the bucket does not answer.
    """
    if newest_slot(home.slots) is None and not home.bucket.list(home.prefix):
        raise home.missing()
    report = VerifyReport()
    slots = check_slots(home.slots)
    report.problems += [f"{each.code}: {each.message}" for each in slots.problems]
    report.notes += [f"log: {len(slots.leftovers)} slots are not needed any more"] if slots.leftovers else []
    state = attempt(report, lambda: state_of(home))
    if state is None:
        return report
    read = partial(read_pinned, home.bucket, home.prefix)
    pinned = [attempt(report, partial(read, pin)) for pin in state.written.pins]
    report.files += 1 + len(pinned)
    with suppress(FileNotFoundError):
        verify_authors(home.bucket.get(home.prefix + AUTHORS), report)
    files = home.files(state.manifest.store_uuid)
    try:
        verify_tables(files, state.manifest, report, _watched(home, state, progress), pinned)
        attempt(report, lambda: verify_records(state.records(), report))
    finally:
        files.close()
    _check_unchanged(home, state)
    return report


def _watched(home: BucketHome, state: BucketState, progress: Progress | None) -> Progress:
    """Return a progress that also looks for a newer slot, so that a long check of a living store ends early."""
    looked: float | None = None

    def watch(path: str) -> None:
        nonlocal looked
        now = home.seconds_since_boot()
        if looked is None or now - looked >= _LOOK_SECONDS:
            _check_unchanged(home, state)
            looked = now
        if progress is not None:
            progress(path)

    return watch


def _check_unchanged(home: BucketHome, state: BucketState) -> None:
    newest = newest_slot(home.slots)
    if newest is None or newest.crc != state.newest.crc:
        raise UnavailableError(
            f"a process has the store at {home.where} open and writes to it: verify a copy instead (nyala job "
            "copy-store)"
        )
