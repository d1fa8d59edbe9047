"""The state that the newest slot gives a store in a bucket, for tools that do not claim it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ...schemas.errors import CorruptionError, UnavailableError
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

_LOOKS_MAX = 100
"""A holder that replaces its manifest or frees its log during each of so many looks leaves no time to read them."""
_DOUBTS_MAX = 3
"""After so many looks damage is believed, though the log goes on: what is damaged is needed as before."""


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
    """Return what is read at the newest slot. What is missing may have been deleted meanwhile by a living holder."""
    doubts = 0
    for _ in range(_LOOKS_MAX):
        newest = newest_slot(home.slots)
        if newest is None:
            raise home.missing()
        try:
            return read(newest)
        except CorruptionError:
            later = newest_slot(home.slots)
            doubts += later is not None and _needs_of(later) == _needs_of(newest)
            if later is None or later.crc == newest.crc or doubts == _DOUBTS_MAX:
                raise
    raise UnavailableError("the process that has the store replaces its files faster than they can be read: try again")


def _needs_of(slot: Slot) -> tuple[int, str]:
    """Return what decides which objects must be there."""
    return slot.header.needed_slot, slot.header.manifest


def _state_at(home: BucketHome, newest: Slot) -> BucketState:
    header, reader = newest.header, SlotReader(home.slots, newest)
    written = Manifest(store_uuid=header.store_uuid.hex())
    if header.manifest:
        written = read_manifest(home.bucket, home.prefix, header.manifest, header.manifest_crc)
    chunk_names: set[str] = set()
    attached = logged_attachments(_records(reader, lambda slot: chunk_names.update(slot.chunk_names)))
    manifest = with_makers(with_logged(written, attached), reader.makers)
    return BucketState(newest, reader, written, manifest, frozenset(chunk_names))
