"""Whole files: looked at, and brought from one file system to another."""

from __future__ import annotations

import errno

from .filesystem import FileSystem

_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})


def view_of(fs: FileSystem, path: str) -> memoryview:
    """Return a whole file."""
    file = fs.open(path)
    try:
        return file.view()
    finally:
        file.close()


def bring(source: FileSystem, name: str, target: FileSystem, path: str) -> None:
    """Give a file that never changes another name, or copy it where that cannot be; its content is durable then."""
    if source is target:
        try:
            target.sync_file(name)
            target.link(name, path)
            return
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
    file = target.create(path)
    try:
        file.append(view_of(source, name))
        file.sync()
    finally:
        file.close()
