"""Reads an object file (ELF, 64 bits, little-endian): its sections, symbols and references."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

X86_64, AARCH64 = 62, 183
"""Kinds of processors."""

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_REFERENCE = struct.Struct("<QQq")
_SYMBOLS, _REFERENCES, _NO_BITS = 2, 4, 8
_WRITABLE, _IN_MEMORY = 1, 2


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    target: int
    alignment: int

    @property
    def is_needed(self) -> bool:
        """Whether it has code or constants; tables for unwinding are not needed, since kernels raise nothing."""
        return bool(self.flags & _IN_MEMORY and self.size) and self.name != ".eh_frame"

    @property
    def is_variable(self) -> bool:
        """Whether it has variables."""
        return bool(self.flags & _WRITABLE) and not self.name.startswith(".data.rel.ro")


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str
    section: int
    """0 if it is defined elsewhere."""
    value: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A place in a section of compiled code that depends on where a symbol is; ``kind`` says how, by the ABI of the
    processor."""

    at: int
    kind: int
    symbol: int
    addend: int


class ObjectFile:
    """An object file that the compiler made of kernels, in memory. ``machine`` is the kind of processor."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        (self.machine,) = struct.unpack_from("<H", content, 0x12)
        (first,) = struct.unpack_from("<Q", content, 0x28)
        count, names = struct.unpack_from("<HH", content, 0x3C)
        rows = [_SECTION.unpack_from(content, first + number * _SECTION.size) for number in range(count)]
        texts = rows[names][4]
        self.sections = [
            Section(self._text(texts + row[0]), row[1], row[2], row[4], row[5], row[6], row[7], max(row[8], 1))
            for row in rows
        ]
        (table,) = (section for section in self.sections if section.kind == _SYMBOLS)
        texts = self.sections[table.link].offset
        self.symbols = [
            Symbol(self._text(texts + name), section, value)
            for name, _, _, section, value, _ in _SYMBOL.iter_unpack(self._bytes(table))
        ]

    def content(self, section: Section) -> bytes:
        """Return what is in a section; one that begins as zeros has nothing."""
        return b"" if section.kind == _NO_BITS else self._bytes(section)

    def references(self) -> Iterator[tuple[int, Reference]]:
        """Yield each reference, with the number of the section that it is in."""
        for section in self.sections:
            if section.kind == _REFERENCES:
                for at, info, addend in _REFERENCE.iter_unpack(self._bytes(section)):
                    yield section.target, Reference(at, info & 0xFFFFFFFF, info >> 32, addend)

    def _bytes(self, section: Section) -> bytes:
        return self._content[section.offset :][: section.size]

    def _text(self, at: int) -> str:
        return self._content[at : self._content.index(b"\0", at)].decode()
