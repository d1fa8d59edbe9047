"""Files with a secret, which nobody else may read."""

from __future__ import annotations

import os
from pathlib import Path

from ...schemas.errors import InvalidArgumentError

_OTHERS = 0o077


def read_private(path: str | Path, size: int = -1) -> bytes:
    """Return the content of a file with a key, at most ``size`` bytes.

    The rule is that of ssh: a file that belongs to another user, such as a secret that a container mounts, is guarded
    by that user.

    Raises:
        InvalidArgumentError: it belongs to this user, and others can read or write it.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        about = os.fstat(file.fileno())
        if about.st_uid == os.geteuid() and about.st_mode & _OTHERS:
            raise InvalidArgumentError(f"other users can read the key file {path}; run: chmod 600 {path}")
        return file.read(size)
