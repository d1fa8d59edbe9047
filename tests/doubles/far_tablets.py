"""A disk whose files of tablets are in a bucket, and all others near: for what a store reads, whatever its home is."""

from __future__ import annotations

from typing import Any

from nyala.engine.bucket.files import BucketFileSystem
from nyala.engine.fs.filesystem import FileSystem

_BOTH = frozenset(name for name in vars(FileSystem) if not name.startswith("_")) | {"fetch_ends"}


def far_tablets(near: FileSystem, far: BucketFileSystem) -> Any:
    """Return a FileSystem that is ``far`` for the files of tablets and ``near`` for all others."""
    return _Routed(near, far)


class _Routed:
    """Routes each call by its path."""

    def __init__(self, near: FileSystem, far: BucketFileSystem) -> None:
        self._near = near
        self._far = far

    def fetch_ends(self, *arguments: Any) -> None:
        self._far.fetch_ends(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name not in _BOTH:
            raise AttributeError(name)

        def call(path: str, *more: Any, **named: Any) -> Any:
            fs = self._far if path.split("/")[0] == "tablets" else self._near
            return getattr(fs, name)(path, *more, **named)

        return call
