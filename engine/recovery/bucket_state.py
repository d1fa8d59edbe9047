"""The state that the newest slot gives a store in a bucket, for tools that do not claim it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ...schemas.errors import CorruptionError
from ..bucket.at_once import at_once
from ..home.bucket import BucketHome
from ..home.manifests import read_manifest
from ..home.pinned import read_pinned
from ..manifest.makers import with_makers
from ..manifest.manifest import Manifest
from ..tablet.attach import logged_attachments, with_logged
from ..wal.records import LogRecords
from ..wal.slots.reader import SlotReader, newest_slot
from ..wal.slots.slot import Slot

T = TypeVar("T")

_ATTEMPTS = 3
"""A living holder replaces its manifests, and frees its log."""


@dataclass(frozen=True, slots=True)
class BucketState:
    """The state of a store in a bucket at its newest slot, for tools that do not claim it."""

    newest: Slot
    reader: SlotReader
    written: Manifest
    """What the slot names."""
    manifest: Manifest
    """The same with the rowsets that the log attaches."""
    chunk_names: frozenset[str]
    """The chunks that the log needs."""

    def records(self) -> Iterator[LogRecords]:
        """Yield the records that the manifest may lack. Raises CorruptionError and UnavailableError."""
        return _records(self.reader)


def _records(reader: SlotReader, note: Callable[[Slot], object] = lambda slot: None) -> Iterator[LogRecords]:
    for slot in reader.read():
        note(slot)
        yield slot.records()


def state_of(home: BucketHome) -> BucketState:
    """Return the state of a store in a bucket that somebody may have. Nobody looks at what its pins hold.

    Raises:
        NotFoundError: there is no such store.
        CorruptionError: its log or its manifest is not what was written.
        UnavailableError: the bucket does not answer.
    """
    return _at_newest(home, lambda newest: _state_at(home, newest))


def state_with_pins_of(home: BucketHome) -> tuple[BucketState, list[Manifest]]:
    """Return the state of a store in a bucket that somebody may have, and what its pins hold. Raises as ``state_of``,
    also CorruptionError if that cannot be read of one of them."""

    def both(newest: Slot) -> tuple[BucketState, list[Manifest]]:
        state = _state_at(home, newest)
        return state, at_once(lambda pin: read_pinned(home.bucket, home.prefix, pin), state.written.pins)

    return _at_newest(home, both)


def _at_newest(home: BucketHome, read: Callable[[Slot], T]) -> T:
    """Return what is read at the newest slot, which may change meanwhile."""
    for attempt in range(_ATTEMPTS):
        newest = newest_slot(home.slots)
        if newest is None:
            raise home.missing()
        try:
            return read(newest)
        except CorruptionError:
            later = newest_slot(home.slots)
            if attempt == _ATTEMPTS - 1 or later is None or later.crc == newest.crc:
                raise
    raise AssertionError("the last attempt returns or raises")


def _state_at(home: BucketHome, newest: Slot) -> BucketState:
    header, reader = newest.header, SlotReader(home.slots, newest)
    written = Manifest(store_uuid=header.store_uuid.hex())
    if header.manifest:
        written = read_manifest(home.bucket, home.prefix, header.manifest, header.manifest_crc)
    chunk_names: set[str] = set()
    attached = logged_attachments(_records(reader, lambda slot: chunk_names.update(slot.chunk_names)))
    manifest = with_makers(with_logged(written, attached), reader.makers)
    return BucketState(newest, reader, written, manifest, frozenset(chunk_names))
