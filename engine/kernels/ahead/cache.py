"""The directory of kernels compiled on first use, which processes share.

The directory is ``kernels-<digest>`` in the cache (`private`); the digest covers all kernel sources and the compiler.
numba itself notices an edit only in the file that a kernel stands in; a kernel that calls an edited helper elsewhere
would be served stale. Entries that cannot be read (a power cut leaves empty files) are compiled again.
"""

import contextlib
import shutil
import sys
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import config

from .private import private_directory, source_digest


def compiler_versions() -> str:
    """Return the versions of the interpreter and the compiler, on which cached kernels depend."""
    return f"{numba.__version__} {llvmlite.__version__} {sys.version}"


def cache_directory() -> Path:
    """Return a directory for compiled kernels that this user alone can write to, made if needed."""
    return private_directory(f"kernels-{source_digest(versions=compiler_versions())}")


def configure() -> None:
    """Point numba's cache of kernels at our directory; called once, before the first kernel is decorated."""
    config.CACHE_DIR = str(cache_directory())  # pyright: ignore[reportAttributeAccessIssue]


def wipe() -> None:
    """Delete the cached kernels of this version; they are compiled again when next needed."""
    directory = Path(config.CACHE_DIR)  # pyright: ignore[reportAttributeAccessIssue]
    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def survive_damage(dispatcher: Any) -> None:
    """Let a kernel do without its cache: what cannot be read or written is compiled.

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
