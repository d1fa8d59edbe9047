"""Puts addresses where the code of an image refers to symbols. How they are written depends on the processor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar

from .object_file import Reference, Symbol


@dataclass(slots=True)
class Image:
    """The image of a library that is being linked: its bytes, the places of its symbols, and what a process has to fill
    in (`image.Header`)."""

    content: bytearray = field(default_factory=bytearray)
    symbols: dict[str, int] = field(default_factory=dict)
    imports: dict[int, str] = field(default_factory=dict)
    own: dict[int, int] = field(default_factory=dict)

    def reserve(self, size: int, alignment: int) -> int:
        """Return the place of ``size`` more bytes."""
        place = -(-len(self.content) // alignment) * alignment
        self.content.extend(bytes(place + size - len(self.content)))
        return place


_OF_EXCEPTIONS = frozenset({"log10"})
"""Names that code for the words of an exception has, beside those of Python: numba counts the digits of a number."""


class References(ABC):
    """Links code: writes references of one kind of processor into the image of a library.

    ``places`` says where sections are. ``functions`` are the names from outside that code may call. Names that only
    code for the words of an exception has are allowed, too; kernels raise none, so reaching it ends the process.
    """

    trap: ClassVar[bytes]
    """The instruction that ends the process."""
    jump_bytes: ClassVar[int]
    """How long a jump through the table is."""

    def __init__(self, image: Image, symbols: list[Symbol], places: dict[int, int], functions: Collection[str]) -> None:
        self._image = image
        self._symbols = symbols
        self._places = places
        self._functions = functions
        self._trap = image.reserve(8, 8)
        image.content[self._trap : self._trap + len(self.trap)] = self.trap
        self._slots: dict[int, int] = {}
        self._jumps: dict[int, int] = {}

    @abstractmethod
    def write(self, at: int, reference: Reference) -> None:
        """Write a reference at a place of the image. Raises ValueError if its kind is unknown."""

    @abstractmethod
    def _write_jump(self, at: int, slot: int) -> None:
        """Write a jump to the address in ``slot``."""

    def _refuse(self, reference: Reference) -> ValueError:
        return ValueError(f"a reference of kind {reference.kind} to {self._symbols[reference.symbol].name!r}")

    def _write_own(self, at: int, place: int) -> None:
        """Let a process fill in the address of a place in the image."""
        self._image.own[at] = place

    def _place(self, number: int) -> int | None:
        """Return where a symbol is in the image; None if it is a function outside.

        Raises ValueError if it is neither."""
        symbol = self._symbols[number]
        if symbol.section == 0:
            if symbol.name in self._functions:
                return None
            if symbol.name in _OF_EXCEPTIONS or symbol.name.startswith(("Py", "_Py")):
                return self._trap
            raise ValueError(f"{symbol.name!r} is no function that kernels may call: change the kernel that needs it")
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

    def _called(self, number: int) -> int:
        """Return where to call a symbol: itself, or a jump to it if it is outside."""
        place = self._place(number)
        if place is not None:
            return place
        if number not in self._jumps:
            slot = self._slot(number)
            jump = self._jumps[number] = self._image.reserve(self.jump_bytes, 8)
            self._write_jump(jump, slot)
        return self._jumps[number]
