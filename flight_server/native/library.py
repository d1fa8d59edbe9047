"""Addresses inside a loaded shared library (ELF, 64 bits): its functions, exported or not, and its import slots.

pyarrow's Flight server lacks two things that a server on a network needs: to inspect a message before it is decoded,
and to end a call. Arrow's C++ has both, so the modules beside this one reach into it. They rely only on mangled names
and the platform's calling convention, and change nothing that they cannot find or recognise.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from pathlib import Path

ANCHOR = "_ZN5arrow6flight8internal10FlightData11OpenMessageEv"
"""A function that libarrow_flight exports."""
_RELOCATIONS, _SYMBOLS, _DYNAMIC_SYMBOLS = 4, 2, 11
_IMPORTS = frozenset({6, 7, 1025, 1026})
"""GLOB_DAT and JUMP_SLOT of x86-64 and ARM64."""
_ADDRESS_END = 1 << 63
"""No address of a process is higher: files have no more bytes."""


class Library:
    """One loaded C library, with the addresses of its functions. Reading it takes about 20 ms: keep the results, not
    the object."""

    def __init__(self, path: Path, anchor: str) -> None:
        """Read the file of a loaded library; ``anchor`` is a function that it exports.

        Raises:
            LookupError: the file is not 64-bit ELF, or lacks ``anchor``.
        """
        with path.open("rb") as file:  # a copy of 30 MB would stay in the process's heap
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self._bytes[:6] != b"\x7fELF\x02\x01":
            raise LookupError(f"{path.name} is not 64-bit little-endian ELF")
        start = struct.unpack_from("<Q", self._bytes, 0x28)[0]
        entry_bytes, count = struct.unpack_from("<HH", self._bytes, 0x3A)
        self._sections = [struct.unpack_from("<IIQQQQIIQQ", self._bytes, start + i * entry_bytes) for i in range(count)]
        self._base = 0
        self._base = exported(path, anchor) - self.address(anchor)

    def address(self, symbol: str) -> int:
        """Return the address of a function. Raises LookupError if the file does not have it."""
        wanted = symbol.encode() + b"\0"
        for _, kind, _, _, offset, size, link, _, _, entry_bytes in self._sections:
            if kind not in (_SYMBOLS, _DYNAMIC_SYMBOLS):
                continue
            names, names_size = self._sections[link][4:6]
            at = self._bytes.find(b"\0" + wanted, names, names + names_size)
            if at < 0:
                continue
            name = struct.pack("<I", at + 1 - names)
            entry = self._bytes.find(name, offset, offset + size)
            while entry >= 0:
                _, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", self._bytes, entry)
                if (entry - offset) % entry_bytes == 0 and section:
                    return self._base + value
                entry = self._bytes.find(name, entry + 1, offset + size)
        raise LookupError(f"there is no symbol {symbol}")

    def import_slot(self, symbol: str) -> int:
        """Return the address of the pointer through which the library calls a function of another library.

        Raises:
            LookupError: it calls no such function.
        """
        wanted = symbol.encode() + b"\0"
        for _, kind, _, _, offset, size, link, _, _, _ in self._sections:
            if kind != _RELOCATIONS:
                continue
            symbols, _, names_of = self._sections[link][4:7]
            names = self._sections[names_of][4]
            for place, info, _ in struct.iter_unpack("<QQq", self._bytes[offset : offset + size]):
                if info & 0xFFFFFFFF in _IMPORTS:
                    name = names + struct.unpack_from("<I", self._bytes, symbols + 24 * (info >> 32))[0]
                    if self._bytes[name : name + len(wanted)] == wanted:
                        return self._base + place
        raise LookupError(f"nothing imports {symbol}")


def exported(path: Path, symbol: str) -> int:
    """Return the address of a function that a loaded C library exports. Raises LookupError if it does not."""
    try:
        found = ctypes.cast(getattr(ctypes.CDLL(str(path)), symbol), ctypes.c_void_p).value
    except (AttributeError, OSError):
        found = None
    if not found:
        raise LookupError(f"{path.name} exports no {symbol}")
    return found


def arrow_library(name: str) -> Path:
    """Return the file of one of pyarrow's C libraries, such as ``libarrow_flight``.

    Raises:
        LookupError: pyarrow has no such file.
    """
    import pyarrow as pa

    for directory in pa.get_library_dirs():
        if found := sorted(Path(directory).glob(f"{name}.so.*")):
            return found[0]
    raise LookupError(f"pyarrow brings no {name}")


class Memory:
    """The memory of this process, read by the system: where none is mapped, or no longer, that does no harm."""

    def __init__(self) -> None:
        """Raises OSError if the system does not let a process read its own."""
        self._file = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def bytes_at(self, address: int, size: int) -> bytes:
        """Return the bytes at an address, as far as there are any."""
        if not 0 <= address < _ADDRESS_END:
            return b""
        try:
            return os.pread(self._file, size, address)
        except OSError:
            return b""

    def word_at(self, address: int) -> int:
        """Return the 8 bytes at an address as a number; 0 if there are none."""
        return int.from_bytes(self.bytes_at(address, 8).ljust(8, b"\0"), "little")


def is_mapped(address: int, *, writable: bool = False) -> bool:
    """Return whether native code may read, or write, the 8 bytes at an address: otherwise access would kill the
    process. Only memory of a library stays mapped: for other memory see ``Memory``."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, permissions = line.split(maxsplit=2)[:2]
        first, end = (int(part, 16) for part in span.split("-"))
        if first <= address < end:
            return address + 8 <= end and permissions[0] == "r" and (permissions[1] == "w" or not writable)
    return False


def word_at(address: int) -> int:
    """Return the 8 bytes at an address, such as in the memory of a C library, as a number."""
    return ctypes.c_uint64.from_address(address).value
