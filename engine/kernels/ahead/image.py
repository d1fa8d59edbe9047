"""The file of a kernel library: machine code of one piece that needs no linker to load, and what it contains.

::

    sha256 of all that follows | u4 header size | header, JSON | image

The image has the code and constants of all kernels. It may stand at any page of memory; a table inside it has the
addresses that only the process knows: those of the C functions that the code calls, and of its own constants.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_PREFIX = struct.Struct("<32sI")
_READ_AND_RUN = 0x1 | 0x4  # PROT_READ | PROT_EXEC
_TYPES: dict[str, Any] = {
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "int32": ctypes.c_int32,
    "float64": ctypes.c_double,
    "bool": ctypes.c_bool,
    "none": None,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel of a library: where it begins in the image, and the names of the types of its result and arguments."""

    offset: int
    result: str
    arguments: list[str]


@dataclass(frozen=True, slots=True)
class Header:
    """What a library of kernels contains. ``imports`` maps places in the image to names of C functions, ``own`` to
    places in it: their addresses go there (8 bytes each)."""

    sources: str
    level: str
    entries: dict[str, Entry]
    imports: dict[int, str]
    own: dict[int, int]


class DamagedLibraryError(Exception):
    """The file of a library of kernels is not what was written."""


def write_library(path: Path, header: Header, image: bytes) -> None:
    """Write the file of a library of kernels; a reader finds all of it or nothing."""
    words = json.dumps(asdict(header)).encode()
    rest = struct.pack("<I", len(words)) + words + image
    made = path.with_name(f"{path.name}.{os.getpid()}")
    made.write_bytes(hashlib.sha256(rest).digest() + rest)
    made.replace(path)


def read_library(path: Path) -> tuple[Header, bytes]:
    """Return the header and the image of a finished library of kernels. Raises DamagedLibraryError, or OSError as
    ``open`` does."""
    content = path.read_bytes()
    if len(content) < _PREFIX.size:
        raise DamagedLibraryError(path)
    digest, size = _PREFIX.unpack_from(content)
    if hashlib.sha256(memoryview(content)[len(digest) :]).digest() != digest:
        raise DamagedLibraryError(path)
    fields = json.loads(content[_PREFIX.size : _PREFIX.size + size])
    header = Header(
        sources=fields["sources"],
        level=fields["level"],
        entries={name: Entry(**entry) for name, entry in fields["entries"].items()},
        imports={int(place): name for place, name in fields["imports"].items()},
        own={int(place): target for place, target in fields["own"].items()},
    )
    return header, content[_PREFIX.size + size :]


def load_image(header: Header, image: bytes, functions: Mapping[str, int]) -> dict[str, Callable[..., Any]]:
    """Load a library: place its image into memory and return its kernels; they stay as long as the process does.

    ``functions`` has the addresses of the C functions by name. A call holds no GIL. Raises OSError if the system
    refuses memory that can be run.
    """
    memory = mmap.mmap(-1, len(image))
    memory[:] = image
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))  # holds on to the memory, too
    for place, name in header.imports.items():
        struct.pack_into("<Q", memory, place, functions[name])
    for place, target in header.own.items():
        struct.pack_into("<Q", memory, place, base + target)
    libc = ctypes.CDLL(None, use_errno=True)
    # Where instructions have a cache of their own (Arm), Linux brings it up to date as new pages become executable.
    if libc.mprotect(ctypes.c_void_p(base), ctypes.c_size_t(len(image)), _READ_AND_RUN):
        raise OSError(ctypes.get_errno(), "memory cannot be made executable")
    _LOADED.append(memory)
    return {
        name: ctypes.CFUNCTYPE(_TYPES[entry.result], *(_TYPES[kind] for kind in entry.arguments))(base + entry.offset)
        for name, entry in header.entries.items()
    }


def keeping_gil(kernel: Any) -> Callable[..., Any]:
    """Return a kernel of a library in a form whose calls hold the GIL."""
    address = ctypes.cast(kernel, ctypes.c_void_p).value
    return ctypes.PYFUNCTYPE(kernel.restype, *kernel.argtypes)(address)


_LOADED: list[mmap.mmap] = []
"""Memory with code, which is never freed: a kernel may be running in any thread."""
