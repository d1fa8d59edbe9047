"""Where compiled kernels are kept between processes.

The directory is ``<base>/nyala/kernels-<digest>``: base is ``NYALA_CACHE_DIR``, else
``XDG_CACHE_HOME``, else ``~/.cache``; the digest covers all kernel sources and the compiler. numba
itself notices an edit only in the file that a kernel stands in; a kernel that calls an edited
helper elsewhere would be served stale.

What lies in the directory is machine code that will be run. So it must belong to this user and be
closed to writing by others; where that cannot be had, a directory that lives as long as the process
serves. Entries that cannot be read (a power cut leaves empty files) are compiled again.
"""

import atexit
import contextlib
import hashlib
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import config

KERNELS_DIRECTORY = Path(__file__).parent


def source_digest(directory: Path = KERNELS_DIRECTORY) -> str:
    """Return a digest of all sources in ``directory``, the interpreter and the compiler."""
    versions = f"{numba.__version__} {llvmlite.__version__} {sys.version}"
    digest = hashlib.sha256(versions.encode())
    for source in sorted(directory.rglob("*.py")):
        content = source.read_bytes()
        digest.update(f"\0{source.relative_to(directory).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def cache_directory() -> Path:
    """Return a directory for compiled kernels that this user alone can write to, made if needed."""
    base = os.environ.get("NYALA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    try:
        parent = Path(base) if base else Path.home() / ".cache"
        directory = parent / "nyala" / f"kernels-{source_digest()}"
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if _is_private(directory):
            tempfile.TemporaryFile(dir=directory).close()
            return directory
    except (OSError, RuntimeError):  # no home, a read-only disk, a file where a directory should be
        pass
    directory = Path(tempfile.mkdtemp(prefix="nyala-kernels-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _is_private(directory: Path) -> bool:
    status = directory.stat()
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid == os.geteuid() and not others_write


def configure() -> None:
    """Point numba's cache at our directory; called once, before the first kernel is decorated."""
    if not config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
        config.CACHE_DIR = str(cache_directory())  # pyright: ignore[reportAttributeAccessIssue]


def wipe() -> None:
    """Delete all compiled kernels of this version; they are compiled again when next needed."""
    directory = Path(config.CACHE_DIR)  # pyright: ignore[reportAttributeAccessIssue]
    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def survive_damage(dispatcher: Any) -> None:
    """Let a compiled function do without its cache: what cannot be read or written is compiled.

    numba lets the error of the unpickler, or of a full disk, escape from the kernel's first call,
    in every process, until somebody deletes the file or makes room.
    """
    entries = getattr(dispatcher, "_cache", None)
    if entries is None:
        return
    load, save = entries.load_overload, entries.save_overload

    def load_or_compile(signature: Any, target_context: Any) -> Any:
        try:
            return load(signature, target_context)
        except Exception:
            # Whatever the bytes made the unpickler or the linker say, the answer is the same.
            with contextlib.suppress(OSError):
                entries.flush()
            return None

    def save_if_possible(signature: Any, compiled: Any) -> None:
        with contextlib.suppress(OSError):
            save(signature, compiled)

    entries.load_overload = load_or_compile
    entries.save_overload = save_if_possible
