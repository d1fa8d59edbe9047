"""Finds and deletes what is left in a bucket: objects that no holder of a store can ever name again.

The number of a file, and the name of a manifest or chunk, say in which reign it was made, and only that reign could
have named it first. So what an earlier reign left, and neither the newest slot's manifest, nor its pins, nor the log
behind it name, is garbage, for whoever opens the store later. What the newest reign has put may be about to be named:
it stays. No ages, no clocks.

A holder that lives may still read files that its manifest has dropped: its scans go on with them, and it deletes them
afterwards. So files of tablets are deleted only once the store was released.

A copy of a store that nobody has opened is claimed by nobody, and has the reigns of its source: another run may bring
files there, of any of them. So all that is there is in use. That run, the next one, or who opens the copy cleans up.

Rows that are staged for a transaction stay, of a released store too, until a time has passed that depends on the wall
clock; so does the transaction. Those that the next opening would discard are garbage.

Imports and outside compactions end with their holder, but who builds their files may go on for a while. So a released
store needs none of these; the names are the builders', but those of this project have the file's number in them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain

from ..fs.failures import named
from ..home.bucket import BucketHome
from ..home.manifests import DIRECTORY, file_paths, reign_of
from ..manifest import files
from ..mvcc.clock import Clock, SystemClock
from ..options import StoreOptions
from ..transaction.staging.area import abandoned_files
from ..wal.slots.bucket_slots import CHUNKS
from ..wal.slots.check import leftovers_before
from ..wal.slots.chunk import reign_of_chunk
from ..wal.slots.reader import newest_slot
from ..wal.slots.slot import NO_EPOCH, Slot, SlotKind
from .bucket_state import state_with_pins_of

_OUTSIDE = ("imports/", "compactions/")
"""Where other processes put files, for the holder to take over."""
_NUMBERED = re.compile(r"(?:[0-9]+-)?([0-9]+)[.-]")
"""A file of a rowset, or of an import, which has the number of its tablet before its own."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """An object of a store in a bucket that nobody needs."""

    name: str
    size_bytes: int
    in_use: bool
    """Whether the process that has the store may still read it, as it has not released it; or a copy may be under
    way."""


def leftovers(home: BucketHome, clock: Clock | None = None) -> list[Leftover]:
    """Return the objects of a store in a bucket that no manifest will name again; somebody may have the store.
    ``clock`` tells the time of day. Raises as ``state_with_pins_of``."""
    state, pinned = state_with_pins_of(home)
    header = state.newest.header
    named = set(chain(file_paths(state.manifest), *map(file_paths, pinned)))
    manifests = {header.manifest, *(pin.manifest for pin in state.manifest.pins)}
    freed = set(map(home.slots.name, leftovers_before(home.slots, header.needed_slot, header.epoch)))
    found: list[Leftover] = []
    objects = list(home.bucket.list(home.prefix))
    is_copy = header.epoch == NO_EPOCH
    is_held = is_copy or header.kind is not SlotKind.RELEASE or _is_claimed(home, state.newest)
    staged = set() if is_held else _abandoned(home, state.manifest.store_uuid, clock or SystemClock())
    for name, size in objects:
        path, in_use = name.removeprefix(home.prefix), is_copy
        if path.startswith(f"{files.ROOT}/"):
            is_left = path not in named and _reign_of_file(path) < header.reign
            in_use = is_held
        elif path.startswith(_OUTSIDE):
            is_left = not is_held or _reign_of_file(path) < header.reign
            in_use = is_held
        elif path.startswith(CHUNKS):
            chunk = path.removeprefix(CHUNKS)
            is_left = chunk not in state.chunk_names and reign_of_chunk(chunk) < header.reign
        elif path.startswith(DIRECTORY):
            manifest = path.removeprefix(DIRECTORY)
            is_left = manifest not in manifests and reign_of(manifest) < header.reign
        else:
            is_left = name in freed or path in staged
        if is_left:
            found.append(Leftover(name, size, in_use))
    return found


def sweep(home: BucketHome) -> list[Leftover]:
    """Delete the objects of a store in a bucket that nobody reads; return all that was found. Raises as
    ``leftovers``."""
    found = leftovers(home)
    home.bucket.delete([each.name for each in found if not each.in_use])
    return found


def _abandoned(home: BucketHome, store_uuid: str, clock: Clock) -> set[str]:
    """Return the paths of staged rows that the next holder would discard. Raises UnavailableError."""
    fs = home.files(store_uuid)
    try:
        with named("staged rows could not be read"):
            return set(abandoned_files(fs, clock.physical_microseconds(), StoreOptions().staging_ttl_seconds))
    finally:
        fs.close()


def _is_claimed(home: BucketHome, release: Slot) -> bool:
    """Whether somebody has the store again. If not, what was listed before is none of the next holder's."""
    newest = newest_slot(home.slots)
    return newest is None or newest.crc != release.crc


def _reign_of_file(path: str) -> int:
    """Return the reign in which a file was made; a large number if its name is of none."""
    found = _NUMBERED.match(path.rpartition("/")[2])
    return files.reign_of(int(found[1])) if found else 1 << 63
