"""Finds and deletes what is left in a bucket: objects that no holder of a store can ever name again.

The number of a file, and the name of a manifest, say in which reign it was made, and only that reign could have named
it first. So what an earlier reign left, and neither the newest slot's manifest nor the log behind it names, is garbage,
for whoever opens the store later. What the newest reign has put may be about to be named: it stays. No ages, no clocks.

A holder that lives may still read files that its manifest has dropped: its scans go on with them, and it deletes them
afterwards. So files of tablets are deleted only once the store was released.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..home.bucket import REIGN_BITS, BucketHome
from ..home.manifests import DIRECTORY, reign_of
from ..manifest import files
from ..manifest.manifest import Manifest
from ..wal.slots import check_slots
from ..wal.slots.slot import SlotKind
from .bucket_state import state_of


@dataclass(frozen=True, slots=True)
class Leftover:
    """An object that nobody needs."""

    name: str
    size_bytes: int
    in_use: bool
    """Whether the process that has the store may still read it: it has not released it."""


def leftovers(home: BucketHome) -> list[Leftover]:
    """Return what no manifest will name again; somebody may have the store. Raises as ``state_of``."""
    state = state_of(home)
    is_held = state.newest.header.kind is not SlotKind.RELEASE
    header, named = state.newest.header, set(_named(state.manifest))
    freed = {home.slots.name(number) for number in check_slots(home.slots).leftovers if number < header.needed_slot}
    found: list[Leftover] = []
    for name, size in home.bucket.list(home.prefix):
        path, in_use = name.removeprefix(home.prefix), False
        if path.startswith(f"{files.ROOT}/"):
            is_left = path not in named and _reign_of_file(path) < header.reign
            in_use = is_held
        elif path.startswith(DIRECTORY):
            manifest = path.removeprefix(DIRECTORY)
            is_left = manifest != header.manifest and reign_of(manifest) < header.reign
        else:
            is_left = name in freed
        if is_left:
            found.append(Leftover(name, size, in_use))
    return found


def sweep(home: BucketHome) -> list[Leftover]:
    """Delete what nobody reads; return all that was found. Raises as ``leftovers``."""
    found = leftovers(home)
    home.bucket.delete([each.name for each in found if not each.in_use])
    return found


def _named(manifest: Manifest) -> Iterator[str]:
    for tablet in (tablet for table in manifest.tables for tablet in table.tablets):
        for rowset in tablet.rowsets:
            yield from (f"{files.directory(tablet.home)}/{name}" for name in rowset.file_names)
        if tablet.arriving:
            directory = files.directory(tablet.arriving.tablet)
            yield from (f"{directory}/{name}" for name in tablet.arriving.file_names)


def _reign_of_file(path: str) -> int:
    """Return the reign in which a file was made; a large number if its name is of none."""
    number = path.rpartition("/")[2].partition(".")[0]
    return int(number) >> REIGN_BITS if number.isdigit() else 1 << 63
