"""Which form the kernels of this process have: a library compiled ahead of time, if there is one that fits.

A library fits if it was compiled from exactly the sources of this installation, and for a level that this machine runs.
It comes with the installation, or `build` put it into the cache. It is decided once, at the import of the first kernel.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from .image import DamagedLibraryError, Header, load_image, read_library
from .levels import LEVELS, Level, usable_levels
from .private import KERNELS_DIRECTORY, cache_base, is_private, source_digest
from .trial import works

INSTALLED = KERNELS_DIRECTORY / "ahead" / "libraries"
"""Where a wheel carries them."""

_FUNCTIONS = ("memcpy", "memmove", "memset", "memcmp", "malloc", "free")
_LZ4_FUNCTIONS = ("LZ4_compress_fast", "LZ4_decompress_safe")
_SWITCHES = ("NUMBA_DISABLE_JIT", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
"""Who sets one of these wants kernels of their own making."""


class Library:
    """The kernels of a library in memory."""

    def __init__(self, header: Header, image: bytes) -> None:
        self.level = header.level
        self.features = frozenset(next(level.features for level in LEVELS if level.name == header.level))
        self.kernels = load_image(header, image, c_functions())

    def kernel(self, function: Callable[..., Any]) -> Callable[..., Any] | None:
        """Return the compiled form of a kernel; None if only other kernels call it."""
        return self.kernels.get(kernel_name(function))


def kernel_name(function: Callable[..., Any]) -> str:
    """Return the name of a kernel in a library: that of its file, which no two rooms share, and its own."""
    return f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"


def c_functions() -> dict[str, int]:
    """Return the addresses of the C functions that the kernels of a library call."""
    import lz4.block

    libc = ctypes.CDLL(None)
    liblz4 = ctypes.CDLL(lz4.block._block.__file__)  # pyright: ignore[reportAttributeAccessIssue]
    found = {name: getattr(libc, name) for name in _FUNCTIONS}
    found |= {f"nyala_{name}": getattr(liblz4, name) for name in _LZ4_FUNCTIONS}
    return {name: ctypes.cast(function, ctypes.c_void_p).value or 0 for name, function in found.items()}


def library_name(level: Level, digest: str) -> str:
    """Return the name of the file of a library of kernels."""
    return f"{level.name}-{digest}.kernels"


def is_wanted() -> bool:
    """Whether this process may use a library of kernels: not with ``NYALA_KERNELS=jit``, nor with numba's own
    switches."""
    return os.environ.get("NYALA_KERNELS") != "jit" and all(os.environ.get(name) is None for name in _SWITCHES)


@cache
def library() -> Library | None:
    """Return the library of kernels that this process uses; None if they are compiled when they are needed."""
    if not is_wanted():
        return None
    digest = source_digest()
    for path, level in _candidates(digest):
        try:
            header, image = read_library(path)
            found = Library(header, image)
            if (header.sources, header.level) == (digest, level.name) and works(found.kernels):
                return found
        except (OSError, DamagedLibraryError):
            continue  # not there, damaged, or no memory that can be run: the next, or none
    return None


def _candidates(digest: str) -> Iterator[tuple[Path, Level]]:
    directories = [INSTALLED]
    try:
        cached = cache_base() / "libraries"
        if is_private(cached):
            directories.append(cached)
    except (OSError, RuntimeError):  # no home, or nothing there yet
        pass
    for level in usable_levels():
        yield from ((directory / library_name(level, digest), level) for directory in directories)
