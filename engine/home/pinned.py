"""The files that the pins of a store in a bucket keep: manifests, and the files that these name.

A pin is an entry of the manifest, so it outlives whoever made it, and one sequence orders it with what drops files: a
file that is dropped later waits until the pin ends, and one that was dropped before is not in the pin's manifest. A pin
names the manifest in which it is made, not each file: so a manifest stays short, however large the pinned tables are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

from ...schemas.errors import CorruptionError, StoreError
from ...schemas.store.bucket_place import BucketPlace
from ..bucket import Bucket
from ..bucket.at_once import at_once
from ..manifest import files
from ..manifest.manifest import Manifest, ManifestFile, PinEntry
from .manifests import file_paths, read_manifest


@dataclass(frozen=True, slots=True)
class _Holding:
    """What a pin holds."""

    paths: frozenset[str]
    tables: dict[int, str]
    """The names of its tables, by their numbers."""


class PinnedObjects:
    """The objects in a bucket that pins hold, for the process that has the store. Thread safe."""

    def __init__(self, bucket: Bucket, place: BucketPlace, next_manifest: Callable[[], str]) -> None:
        """``place`` is what others call the bucket; ``next_manifest`` returns the name of the manifest that is written
        next."""
        self._bucket = bucket
        self.place = place
        self.next_manifest = next_manifest
        self._manifest: ManifestFile | None = None
        self._found: dict[str, _Holding | None] = {}
        """By the manifest in which a pin was made, what it holds; None: that manifest cannot be read."""
        self._held: tuple[tuple[PinEntry, ...], frozenset[str], bool] = (), frozenset(), False
        """The pins at one moment, the files that they hold, and whether they may hold any other."""

    def load(self, manifest: Manifest, note: Callable[[StoreError], None]) -> None:
        """Read what the pins of a manifest hold. While one of them cannot be read, pins hold all files; ``note`` gets
        its damage. Raises UnavailableError."""

        def found(pin: PinEntry) -> CorruptionError | None:
            try:
                self.add(pin, self.read(pin))
            except CorruptionError as error:
                self._found[pin.manifest] = None
                return error
            return None

        for error in at_once(found, manifest.pins):
            if error:
                note(error)

    def watch(self, manifest: ManifestFile) -> None:
        """Follow the pins of a manifest from now on."""
        self._manifest = manifest

    def add(self, pin: PinEntry, held: Manifest) -> None:
        """Take note of what a pin holds, before a manifest with it counts."""
        tables = {table.id: table.name for table in held.tables}
        self._found[pin.manifest] = _Holding(frozenset(file_paths(held)), tables)

    def forget(self, pins: Iterable[PinEntry]) -> None:
        """Take note that pins have ended, or were not made."""
        for pin in pins:
            self._found.pop(pin.manifest, None)

    def holds(self, path: str) -> bool:
        """Whether a file must stay though the store does not need it."""
        assert self._manifest is not None, "nothing is deleted before the manifest is read"
        pins = self._manifest.current.pins
        if pins is not self._held[0]:
            found = [self._found.get(pin.manifest) for pin in pins]
            known = frozenset().union(*(held.paths for held in found if held is not None))
            self._held = pins, known, None in found
        _, known, is_doubtful = self._held
        return is_doubtful or path in known

    def holds_manifest(self, name: str) -> bool:
        """Whether a manifest must stay though another one counts."""
        return self._manifest is not None and any(pin.manifest == name for pin in self._manifest.current.pins)

    def table_name(self, pin: PinEntry) -> str | None:
        """Return what the table of a pin was called then; None for a pin of all tables, or if nobody can tell."""
        held = self._found.get(pin.manifest)
        return held.tables.get(pin.table) if held and pin.table else None

    def read(self, pin: PinEntry) -> Manifest:
        """Return what a pin holds. Raises as ``read_manifest``."""
        return read_pinned(self._bucket, self.place.prefix, pin)

    def sizes(self, held: Manifest) -> dict[str, int]:
        """Return the bytes in each file that a pin holds, by its path, as the bucket tells. Raises UnavailableError."""
        prefix, wanted = self.place.prefix, set(file_paths(held))
        homes = {f"{prefix}{files.directory(tablet.home)}/" for table in held.tables for tablet in table.tablets}
        listed = chain.from_iterable(at_once(lambda home: list(self._bucket.list(home)), sorted(homes)))
        return {path: size for name, size in listed if (path := name.removeprefix(prefix)) in wanted}


def held_by(pin: PinEntry, manifest: Manifest) -> Manifest:
    """Return the part that a pin of a store in a bucket holds of the manifest in which it was made."""
    tables = tuple(table for table in manifest.tables if pin.table in (None, table.id))
    return manifest.model_copy(update={"tables": tables})


def read_pinned(bucket: Bucket, home: str, pin: PinEntry) -> Manifest:
    """Return what a pin holds of the store in a bucket whose objects begin with ``home``. Raises as
    ``read_manifest``."""
    return held_by(pin, read_manifest(bucket, home, pin.manifest))
