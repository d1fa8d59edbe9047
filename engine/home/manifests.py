"""The manifests of a store in a bucket: immutable objects, and the newest slot of the log names the one that counts.

``manifests/<reign>-<n>`` has the bytes of the file ``manifest`` of a directory. Only the process whose reign it is puts
objects there, and none of them twice. So a manifest that was put means nothing yet: the slot that names it decides.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import Protocol

from ...schemas.errors import CorruptionError, UnavailableError
from ..bucket import Bucket
from ..bucket.files.deletions import Deletions
from ..manifest.manifest import Manifest, unpack_manifest

DIRECTORY = "manifests/"


class NamingLog(Protocol):
    """The log, as far as it names manifests."""

    def commit_manifest(self, name: str, crc: int, needed_lsn: int) -> None: ...


def read_manifest(bucket: Bucket, home: str, name: str, crc: int) -> Manifest:
    """Return the manifest that a slot names, of the store whose objects begin with ``home``.

    Raises:
        CorruptionError: it is missing, or not what was written.
        UnavailableError: the bucket does not answer.
    """
    path = f"{DIRECTORY}{name}"
    try:
        document = bucket.get(home + path)
    except FileNotFoundError as error:
        raise CorruptionError(path, 0, "the log names this manifest, but it is missing") from error
    if zlib.crc32(document) != crc:
        raise CorruptionError(path, 0, "this is not the manifest that the log names")
    return unpack_manifest(document)


class ManifestInBucket:
    """A ManifestPlace in a bucket, for one reign. What a manifest drops is never deleted if nobody knows whether the
    slot that names it has landed."""

    def __init__(
        self, bucket: Bucket, home: str, reign: int, counting: str, log: NamingLog, deletions: Deletions
    ) -> None:
        """``counting`` is the name of the manifest that counts, empty if there is none."""
        self._bucket = bucket
        self._directory = home + DIRECTORY
        self._reign = reign
        self._counting = counting
        self._deletions = deletions
        self._log = log
        self._number = 0
        self._written = "", 0
        self.replaced: list[str] = []
        """The manifests that counted, and that nobody needs any more."""

    def write(self, document: bytes) -> None:
        self._number += 1
        name = f"{self._reign}-{self._number}"
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
            self.replaced.append(replaced)

    def copy(self, document: bytes) -> None:
        """Keep none: the bucket has copies of its own."""

    def remove_replaced(self) -> None:
        """Delete the manifests that were replaced. It asks the bucket, so no commit waits for it."""
        replaced, self.replaced = self.replaced, []
        if replaced:
            with suppress(UnavailableError):  # the next holder sweeps
                self._bucket.delete([self._directory + name for name in replaced])

    def sweep(self) -> None:
        """Delete the manifests that earlier reigns left, and that do not count. Raises UnavailableError."""
        found = (name.removeprefix(self._directory) for name, _ in self._bucket.list(self._directory))
        earlier = [name for name in found if name != self._counting and reign_of(name) < self._reign]
        self._bucket.delete([self._directory + name for name in earlier])


def reign_of(name: str) -> int:
    """Return the reign in which a manifest was put; a large number if the name is of none."""
    reign = name.partition("-")[0]
    return int(reign) if reign.isdigit() else 1 << 63
