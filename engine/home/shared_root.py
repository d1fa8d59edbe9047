"""SharedRoot: what stores below one root of a bucket do for each other. One has objects of another copied to names of
its own; the bucket copies, and no bytes come here."""

from __future__ import annotations

from ...schemas.store.moving import MoveObjects
from ..bucket.files import BucketFileSystem


class SharedRoot:
    """The root in a bucket that a store shares with others, to copy their objects. Thread safe."""

    def __init__(self, fs: BucketFileSystem, cluster: str, url: str, prefix: str) -> None:
        """``cluster`` is the uuid of the root, which users call ``url``; the store's objects begin with ``prefix``."""
        self._fs = fs
        self._cluster = cluster
        self._url = url
        self._prefix = prefix

    def objects_in(self, directory: str) -> MoveObjects:
        """Return where others find the files of a directory."""
        return MoveObjects(cluster=self._cluster, url=self._url, directory=f"{self._prefix}{directory}/")

    def has(self, objects: MoveObjects) -> bool:
        """Whether these are below this root. Both must agree on its name, too: somebody may have copied the bucket."""
        return (objects.cluster, objects.url) == (self._cluster, self._url)

    def copy(self, objects: MoveObjects, name: str, path: str) -> int:
        """Have a file of another store copied to ``path``, a new name; return its bytes.

        Raises:
            FileNotFoundError: it is gone.
            OSError: the bucket does not answer.
        """
        return self._fs.copy_object(objects.directory + name, path)
