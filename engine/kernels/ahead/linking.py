"""Turns one object file of x86-64 (ELF) into the image of a library.

Sections with code and constants stand one behind the other, so distances between them are known here for good. What is
not known goes to a table at the end: addresses of C functions, which code reaches by a jump through the table, and of
the image's own constants.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass, field

_PAGE_BYTES = 4096
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SYMBOLS, _RELOCATIONS, _NO_BITS = 2, 4, 8
_WRITABLE, _IN_MEMORY = 1, 2
_ABSOLUTE, _DISTANCE, _CALL, _DISTANCE_64 = 1, 2, 4, 24
_BY_TABLE = (9, 41, 42)
_JUMP = b"\xff\x25"  # jmp [rip + distance]
_TRAP = b"\x0f\x0b"  # ud2
_UNUSED = "_ZN08NumbaEnv"
"""Places for an object that numba's own callers set: here they stay empty."""


@dataclass(slots=True)
class Image:
    """The bytes of a library, the places of its symbols, and what a process has to fill in (`image.Header`)."""

    content: bytearray = field(default_factory=bytearray)
    symbols: dict[str, int] = field(default_factory=dict)
    imports: dict[int, str] = field(default_factory=dict)
    own: dict[int, int] = field(default_factory=dict)

    def reserve(self, size: int, alignment: int) -> int:
        """Return the place of ``size`` more bytes."""
        place = -(-len(self.content) // alignment) * alignment
        self.content.extend(bytes(place + size - len(self.content)))
        return place


@dataclass(frozen=True, slots=True)
class _Section:
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


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    section: int
    value: int


def link(obj: bytes, functions: Collection[str]) -> Image:
    """Return the image of an object file that may call ``functions``.

    Other names from outside belong to code that words an exception; kernels raise none, so reaching it ends the
    process. Raises ValueError if the file has variables, which kernels must not have, or refers to something in an
    unknown way.
    """
    sections = _sections(obj)
    symbols = _symbols(obj, sections)
    _check_variables(sections, symbols)
    image = Image()
    places: dict[int, int] = {}
    for number, section in enumerate(sections):
        if not section.is_needed:
            continue
        places[number] = image.reserve(section.size, section.alignment)
        if section.kind != _NO_BITS:
            image.content[places[number] : places[number] + section.size] = obj[section.offset :][: section.size]
    for symbol in symbols:
        if symbol.name and symbol.section in places:
            image.symbols[symbol.name] = places[symbol.section] + symbol.value
    linker = _Linker(image, symbols, places, functions)
    for section in sections:
        if section.kind == _RELOCATIONS and section.target in places:
            for at, info, addend in _RELOCATION.iter_unpack(obj[section.offset :][: section.size]):
                linker.relocate(places[section.target] + at, info & 0xFFFFFFFF, info >> 32, addend)
    image.reserve(0, _PAGE_BYTES)
    return image


def _check_variables(sections: list[_Section], symbols: list[_Symbol]) -> None:
    for symbol in symbols:
        section = sections[symbol.section] if 0 < symbol.section < len(sections) else None
        if section is None or not symbol.name or symbol.name.startswith(_UNUSED):
            continue
        if section.flags & _WRITABLE and not section.name.startswith(".data.rel.ro"):
            raise ValueError(f"the kernels have a variable: {symbol.name}")


class _Linker:
    """Puts addresses where the code of an image refers to symbols."""

    def __init__(
        self, image: Image, symbols: list[_Symbol], places: dict[int, int], functions: Collection[str]
    ) -> None:
        self._image = image
        self._symbols = symbols
        self._places = places
        self._functions = functions
        self._trap = image.reserve(8, 8)
        image.content[self._trap : self._trap + len(_TRAP)] = _TRAP
        self._slots: dict[int, int] = {}
        self._jumps: dict[int, int] = {}

    def relocate(self, at: int, kind: int, number: int, addend: int) -> None:
        """Change the reference at ``at`` to symbol ``number``."""
        place = self._place(number)
        if kind == _ABSOLUTE and place is not None:
            self._image.own[at] = place + addend
        elif kind in _BY_TABLE:
            self._put("<i", at, self._slot(number) + addend - at)
        elif kind in (_DISTANCE, _CALL):
            self._put("<i", at, (self._jump(number) if place is None else place) + addend - at)
        elif kind == _DISTANCE_64 and place is not None:
            self._put("<q", at, place + addend - at)
        else:
            raise ValueError(f"a reference of kind {kind} to {self._symbols[number].name!r}")

    def _place(self, number: int) -> int | None:
        """Return where a symbol is in the image; None if it is a function outside."""
        symbol = self._symbols[number]
        if symbol.section == 0:
            return None if symbol.name in self._functions else self._trap
        if symbol.section not in self._places:
            raise ValueError(f"{symbol.name} is neither code nor a constant")
        return self._places[symbol.section] + symbol.value

    def _slot(self, number: int) -> int:
        """Return the place of a symbol's address."""
        if number not in self._slots:
            slot = self._slots[number] = self._image.reserve(8, 8)
            place = self._place(number)
            if place is None:
                self._image.imports[slot] = self._symbols[number].name
            else:
                self._image.own[slot] = place
        return self._slots[number]

    def _jump(self, number: int) -> int:
        """Return the place of a jump to a symbol outside."""
        if number not in self._jumps:
            slot = self._slot(number)
            jump = self._jumps[number] = self._image.reserve(8, 8)
            self._image.content[jump : jump + 2] = _JUMP
            self._put("<i", jump + 2, slot - jump - 6)
        return self._jumps[number]

    def _put(self, form: str, at: int, distance: int) -> None:
        struct.pack_into(form, self._image.content, at, distance)


def _sections(obj: bytes) -> list[_Section]:
    (first,) = struct.unpack_from("<Q", obj, 0x28)
    count, names = struct.unpack_from("<HH", obj, 0x3C)
    rows = [_SECTION.unpack_from(obj, first + number * _SECTION.size) for number in range(count)]
    texts = rows[names][4]
    return [
        _Section(_text(obj, texts + row[0]), row[1], row[2], row[4], row[5], row[6], row[7], max(row[8], 1))
        for row in rows
    ]


def _symbols(obj: bytes, sections: list[_Section]) -> list[_Symbol]:
    (table,) = (section for section in sections if section.kind == _SYMBOLS)
    texts = sections[table.link].offset
    rows = _SYMBOL.iter_unpack(obj[table.offset : table.offset + table.size])
    return [_Symbol(_text(obj, texts + name), section, value) for name, _, _, section, value, _ in rows]


def _text(obj: bytes, at: int) -> str:
    return obj[at : obj.index(b"\0", at)].decode()
