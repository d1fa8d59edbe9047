"""References of AArch64, as its ABI numbers them ("ELF for the Arm 64-bit Architecture", chapter 5.7).

An instruction has 4 bytes, with room for a few bits of a distance. To reach something, one instruction computes its
page of 4 KiB from its own, and the next one adds the place in that page: so an image begins at a page.
"""

from __future__ import annotations

import struct

from .object_file import Reference
from .references import References

_ABSOLUTE, _DISTANCE_64, _DISTANCE = 257, 260, 261
_PAGE, _PAGE_BY_TABLE, _IN_PAGE_BY_TABLE = 275, 311, 312
_IN_PAGE = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
"""An addition, and loads and stores of 1, 2, 4, 8 and 16 bytes: the power of two that places are counted in."""
_CALLS = (282, 283)
_PAGE_BYTES = 4096
_JUMP = (0x90000010, 0xF9400210, 0xD61F0200)
"""``adrp x16, page; ldr x16, [x16, place in it]; br x16``"""


class ArmReferences(References):
    trap = b"\x00\x00\x20\xd4"  # brk 0
    jump_bytes = 12

    def write(self, at: int, reference: Reference) -> None:
        kind, number, addend = reference.kind, reference.symbol, reference.addend
        if kind in _CALLS:
            self._add(at, self._distance(self._called(number) + addend - at, 2, 26))
        elif kind == _PAGE_BY_TABLE:
            self._add(at, self._pages(at, self._slot(number)))
        elif kind == _IN_PAGE_BY_TABLE:
            self._add(at, self._in_page(self._slot(number), 3))
        elif (place := self._place(number)) is None:
            raise self._refuse(reference)
        elif kind == _PAGE:
            self._add(at, self._pages(at, place + addend))
        elif kind in _IN_PAGE:
            self._add(at, self._in_page(place + addend, _IN_PAGE[kind]))
        elif kind == _ABSOLUTE:
            self._write_own(at, place + addend)
        elif kind in (_DISTANCE, _DISTANCE_64):
            struct.pack_into("<i" if kind == _DISTANCE else "<q", self._image.content, at, place + addend - at)
        else:
            raise self._refuse(reference)

    def _write_jump(self, at: int, slot: int) -> None:
        struct.pack_into("<III", self._image.content, at, *_JUMP)
        self._add(at, self._pages(at, slot))
        self._add(at + 4, self._in_page(slot, 3))

    def _add(self, at: int, bits: int) -> None:
        """Set bits of the instruction at a place."""
        (instruction,) = struct.unpack_from("<I", self._image.content, at)
        struct.pack_into("<I", self._image.content, at, instruction | bits)

    @staticmethod
    def _distance(distance: int, shift: int, width: int) -> int:
        """Return the lowest ``width`` bits of a distance in units of two to the ``shift``."""
        if distance % (1 << shift) or not -(1 << width - 1) <= distance >> shift < 1 << width - 1:
            raise ValueError(f"{distance} bytes are too far for an instruction")
        return distance >> shift & (1 << width) - 1

    @classmethod
    def _pages(cls, at: int, target: int) -> int:
        """Return the bits of an instruction at ``at`` that computes the page of ``target``."""
        pages = cls._distance(target - target % _PAGE_BYTES - (at - at % _PAGE_BYTES), 12, 21)
        return (pages & 3) << 29 | pages >> 2 << 5

    @staticmethod
    def _in_page(target: int, shift: int) -> int:
        """Return the bits of an instruction that adds the place of ``target`` in its page."""
        place = target % _PAGE_BYTES
        if place % (1 << shift):
            raise ValueError(f"{target} is not aligned to {1 << shift} bytes")
        return place >> shift << 10
