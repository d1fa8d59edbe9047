"""Places for compiled kernels that this user alone can write to, and the digest of the sources they come from.

What lies in such a directory is machine code that will be run. So it must belong to this user and be closed to writing
by others, and nobody else may replace it or a directory above it; where that cannot be had, a directory that lives as
long as the process serves.
"""

import atexit
import grp
import hashlib
import logging
import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path

KERNELS_DIRECTORY = Path(__file__).parents[1]


def source_digest(directory: Path = KERNELS_DIRECTORY, versions: str = "") -> str:
    """Return a digest of the sources of kernels in ``directory``, and of the ``versions`` of what compiled them."""
    digest = hashlib.sha256(versions.encode())
    for source in sorted(directory.rglob("*.py")):
        content = source.read_bytes()
        digest.update(f"\0{source.relative_to(directory).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def cache_base() -> Path:
    """Return where caches of kernels go: ``NYALA_CACHE_DIR``, else ``XDG_CACHE_HOME``, else ``~/.cache``, and there
    ``nyala``. Links are followed.

    Raises RuntimeError if there is no home.
    """
    base = os.environ.get("NYALA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    return ((Path(base) if base else Path.home() / ".cache") / "nyala").resolve()


def private_directory(name: str) -> Path:
    """Return the directory ``name`` in the cache of kernels, made if needed, or a temporary one if the cache is not
    ours alone."""
    try:
        directory = cache_base() / name
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if is_private(directory):
            tempfile.TemporaryFile(dir=directory).close()
            return directory
        logging.getLogger("nyala.engine").warning(
            "compiled kernels are not kept in %s, since other users can write to it or to a directory above it",
            directory,
        )
    except (OSError, RuntimeError):  # no home, a read-only disk, a file where a directory should be
        pass
    directory = Path(tempfile.mkdtemp(prefix="nyala-kernels-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def is_private(directory: Path) -> bool:
    """Whether only this user and root can write to a directory of kernels, or replace it. ``directory`` has no links in
    it."""
    status = directory.stat()
    is_mine = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return is_mine and all(map(_keeps_names, directory.parents))


def _keeps_names(directory: Path) -> bool:
    """Whether only this user and root can rename or delete what these two have put into a directory."""
    status = directory.stat()
    if status.st_uid not in (0, os.geteuid()):
        return False
    others_write = status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid))
    return not others_write or bool(status.st_mode & stat.S_ISVTX)


def _is_own_group(group_id: int) -> bool:
    """Whether a group is this user's alone: many systems give each user one, and let it write to all that is new."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    return (user.pw_name, user.pw_gid) == (group.gr_name, group_id) and not set(group.gr_mem) - {user.pw_name}
