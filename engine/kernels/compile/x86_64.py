"""References of x86-64, as its ABI numbers them ("System V Application Binary Interface, AMD64", chapter 4.4)."""

from __future__ import annotations

import struct

from .object_file import Reference
from .references import References

_ABSOLUTE, _DISTANCE, _CALL, _DISTANCE_64 = 1, 2, 4, 24
_BY_TABLE = (9, 41, 42)
_JUMP = b"\xff\x25"  # jmp [rip + distance]


class X86References(References):
    """Links code for x86-64. Distances are whole words of 4 or 8 bytes behind an instruction."""

    trap = b"\x0f\x0b"  # ud2
    jump_bytes = 8

    def write(self, at: int, reference: Reference) -> None:
        kind, number, addend = reference.kind, reference.symbol, reference.addend
        if kind in _BY_TABLE:
            self._put("<i", at, self._slot(number) + addend - at)
        elif kind in (_DISTANCE, _CALL):
            self._put("<i", at, self._called(number) + addend - at)
        elif kind in (_ABSOLUTE, _DISTANCE_64) and (place := self._place(number)) is not None:
            if kind == _ABSOLUTE:
                self._write_own(at, place + addend)
            else:
                self._put("<q", at, place + addend - at)
        else:
            raise self._refuse(reference)

    def _write_jump(self, at: int, slot: int) -> None:
        self._image.content[at : at + 2] = _JUMP
        self._put("<i", at + 2, slot - at - 6)

    def _put(self, form: str, at: int, distance: int) -> None:
        struct.pack_into(form, self._image.content, at, distance)
