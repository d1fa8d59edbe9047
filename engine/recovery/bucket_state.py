"""What the newest slot of a store in a bucket makes of it, for tools that do not claim it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...schemas.errors import CorruptionError, NotFoundError
from ..home.bucket import BucketHome
from ..home.manifests import read_manifest
from ..home.pinned import read_pinned
from ..manifest.manifest import Manifest
from ..tablet.attach import logged_attachments, with_logged
from ..wal.format import LogRecord
from ..wal.slots.reader import SlotReader, newest_slot
from ..wal.slots.slot import Slot

_ATTEMPTS = 3
"""A living holder replaces its manifests, and frees its log."""


@dataclass(frozen=True, slots=True)
class BucketState:
    """A store at its newest slot."""

    newest: Slot
    reader: SlotReader
    written: Manifest
    """What the slot names."""
    manifest: Manifest
    """The same with the rowsets that the log attaches."""
    pinned: Mapping[str, Manifest]
    """For each pin the manifest in which it was made, by the pin's id, with the tables that it holds."""

    def records(self) -> Iterator[LogRecord]:
        """Yield the records that the manifest may lack. Raises CorruptionError and UnavailableError."""
        return _records(self.reader)


def _records(reader: SlotReader) -> Iterator[LogRecord]:
    for slot in reader.read():
        yield from slot.records()


def state_of(home: BucketHome) -> BucketState:
    """Return the state of a store that somebody may have.

    Raises:
        NotFoundError: there is no such store.
        CorruptionError: its log or its manifest is not what was written.
        UnavailableError: the bucket does not answer.
    """
    for attempt in range(_ATTEMPTS):
        newest = newest_slot(home.slots)
        if newest is None:
            raise NotFoundError(f"there is no store at {home.where}: check the URL and the name")
        try:
            return _state_at(home, newest)
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
    pinned = {pin.id: read_pinned(home.bucket, home.prefix, pin) for pin in written.pins}
    manifest = with_logged(written, logged_attachments(_records(reader)))
    return BucketState(newest, reader, written, manifest, pinned)
