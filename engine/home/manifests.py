"""The manifests of a store in a bucket: immutable objects, and the newest slot of the log names the one that counts.

``manifests/<reign>-<n>`` has the bytes of the file ``manifest`` of a directory. Only the process whose reign it is puts
objects there, and none of them twice. So a manifest that was put means nothing yet: the slot that names it decides.
Those in which pins were made stay until these end.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol

from ...schemas.errors import CorruptionError, UnavailableError
from .. import threads
from ..bucket import Bucket
from ..bucket.files.deletions import Deletions
from ..manifest import files
from ..manifest.manifest import Manifest, unpack_manifest

DIRECTORY = "manifests/"


class NamingLog(Protocol):
    """The log of a store in a bucket, as far as its slots name manifests."""

    def commit_manifest(self, name: str, crc: int, needed_lsn: int) -> None: ...


def read_manifest(bucket: Bucket, home: str, name: str, crc: int | None = None) -> Manifest:
    """Return the manifest that a slot names, with its checksum, or a pin, of the store in a bucket whose objects begin
    with ``home``.

    Raises:
        CorruptionError: it is missing, or not what was written.
        UnavailableError: the bucket does not answer.
    """
    path = f"{DIRECTORY}{name}"
    try:
        document = bucket.get(home + path)
    except FileNotFoundError as error:
        who = "a pin" if crc is None else "the log"
        raise CorruptionError(path, 0, f"{who} names this manifest, but it is missing") from error
    if crc is not None and zlib.crc32(document) != crc:
        raise CorruptionError(path, 0, "this is not the manifest that the log names")
    return unpack_manifest(document)


def file_paths(manifest: Manifest) -> Iterator[str]:
    """Yield the paths of all files that the manifest of a store in a bucket names."""
    for tablet in (tablet for table in manifest.tables for tablet in table.tablets):
        for rowset in tablet.rowsets:
            yield from (f"{files.directory(tablet.home)}/{name}" for name in rowset.file_names)
        if tablet.arriving:
            directory = files.directory(tablet.arriving.tablet)
            yield from (f"{directory}/{name}" for name in tablet.arriving.file_names)


class ManifestInBucket:
    """The place of a store's manifest in a bucket, for one reign. What a manifest drops is never deleted if nobody
    knows whether the slot that names it has landed."""

    def __init__(
        self,
        bucket: Bucket,
        home: str,
        reign: int,
        counting: str,
        log: NamingLog,
        deletions: Deletions,
        is_pinned: Callable[[str], bool],
    ) -> None:
        """``counting`` is the name of the manifest that counts, empty if there is none; one that ``is_pinned`` stays
        though another one counts."""
        self._bucket = bucket
        self._directory = home + DIRECTORY
        self._reign = reign
        self._counting = counting
        self._deletions = deletions
        self._log = log
        self._number = 0
        self._written = "", 0
        self._is_pinned = is_pinned
        self._replaced: list[str] = []
        """The manifests that counted. They are noted while others of them are deleted."""
        self._lock = threads.Lock()

    @property
    def next_name(self) -> str:
        """The name of the manifest that is written next."""
        return f"{self._reign}-{self._number + 1}"

    def write(self, document: bytes) -> None:
        name = self.next_name
        self._number += 1
        self._bucket.put(self._directory + name, document)
        self._written = name, zlib.crc32(document)

    def install(self, log_needed_from: int) -> None:
        name, crc = self._written
        try:
            self._log.commit_manifest(name, crc, log_needed_from)
        except BaseException:
            self._deletions.abandon()
            raise
        replaced, self._counting = self._counting, name
        if replaced:
            with self._lock:
                self._replaced.append(replaced)

    def copy(self, document: bytes) -> None:
        """Keep none: the bucket has copies of its own."""

    def has_replaced(self) -> bool:
        """Whether ``remove_replaced`` would delete any."""
        return not all(map(self._is_pinned, self._replaced))

    def remove_replaced(self) -> None:
        """Delete the manifests that were replaced. It asks the bucket, so no commit waits for it."""
        with suppress(UnavailableError):  # the next holder sweeps
            self._delete_replaced()

    def find_replaced(self) -> None:
        """Find the manifests that earlier reigns left, and that do not count, for ``remove_replaced``. Raises
        UnavailableError."""
        found = (name.removeprefix(self._directory) for name, _ in self._bucket.list(self._directory))
        self._replaced = [name for name in found if name != self._counting and reign_of(name) < self._reign]

    def _delete_replaced(self) -> None:
        with self._lock:
            replaced, self._replaced = self._replaced, []
        free = [name for name in replaced if not self._is_pinned(name)]
        with self._lock:
            self._replaced += (name for name in replaced if name not in free)
        if free:
            self._bucket.delete([self._directory + name for name in free])


def reign_of(name: str) -> int:
    """Return the reign in which the object of a manifest was put; a large number if the name is of none."""
    reign = name.partition("-")[0]
    return int(reign) if reign.isdigit() else 1 << 63
