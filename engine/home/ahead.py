"""CacheAhead: a process that stands by keeps in its cache what it would read first if it took the store over.

That is the end of each file: one request for each, which would all come between the claim and the first answer.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ...schemas.errors import StoreError
from .. import threads
from ..bucket.files import BucketFileSystem
from ..cfile.footer import TAIL_AT_ONCE
from ..manifest.makers import maker_of, with_makers
from .manifests import file_paths, read_manifest

if TYPE_CHECKING:
    from ..bucket import Bucket
    from ..fs.filesystem import FileSystem
    from ..wal.slots.slot import SlotHeader

_PAUSE_SECONDS = 10.0
"""At least so long between two manifests: a busy holder has a new one more often."""


class CacheAhead:
    """Fills the cache of a standby ahead: follows the manifests of the store whose objects begin with ``prefix``, on a
    thread of its own, until ``stop``.

    All it does may fail, or come late: whoever opens the store fetches what is missing.
    """

    def __init__(
        self,
        bucket: Bucket,
        prefix: str,
        cache: FileSystem,
        capacity_bytes: int,
        pause_seconds: float = _PAUSE_SECONDS,
    ) -> None:
        """``cache`` and ``capacity_bytes`` are those with which the store will be opened."""
        self._bucket = bucket
        self._prefix = prefix
        self._cache = cache
        self._capacity_bytes = capacity_bytes
        self._pause_seconds = pause_seconds
        self._newest: SlotHeader | None = None
        self._is_changed = threads.Event()
        self._is_over = threads.Event()
        self._paths: frozenset[tuple[str, str]] = frozenset()
        """The files whose ends were fetched, as far as they were there, and who made each."""
        self._thread = threads.Thread(target=self._run, name="nyala-ahead", daemon=True)
        self._thread.start()

    def see(self, header: SlotHeader) -> None:
        """Take note of the newest slot. Returns at once."""
        newest = self._newest
        if newest is None or (header.manifest, header.manifest_crc) != (newest.manifest, newest.manifest_crc):
            self._newest = header
            self._is_changed.set()

    def stop(self) -> None:
        """Begin nothing more; do not wait for what is under way. What still comes into the cache harms nobody."""
        self._is_over.set()
        self._is_changed.set()

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._is_changed.wait()
            self._is_changed.clear()
            try:
                self._fetch()
            except (StoreError, OSError):  # no answer, or the manifest has been replaced meanwhile
                self._is_changed.set()
            self._is_over.wait(self._pause_seconds)

    def _fetch(self) -> None:
        header = self._newest
        if self._is_over.is_set() or header is None or not header.manifest:
            return
        manifest = read_manifest(self._bucket, self._prefix, header.manifest, header.manifest_crc)
        makers = with_makers(manifest, header.makers).makers
        paths = frozenset((path, maker_of(makers, path)) for path in file_paths(manifest))
        if new := sorted(paths - self._paths):
            uuid = header.store_uuid.hex()
            files = BucketFileSystem(
                self._bucket, self._prefix, self._cache, self._capacity_bytes, uuid, maker_of=dict(new).__getitem__
            )
            try:
                files.exists(new[0][0])  # lists the names: if that fails, it would for each of them
                files.fetch_ends(dict(new), 0, TAIL_AT_ONCE)
                for path, _ in new:
                    if self._is_over.is_set():
                        return
                    with suppress(FileNotFoundError):  # the holder has replaced it meanwhile
                        file = files.open(path)
                        file.pread(max(file.size - TAIL_AT_ONCE, 0), TAIL_AT_ONCE)  # waits until it is here
            finally:
                files.close()
        self._paths = paths
