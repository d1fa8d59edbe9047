"""Kernels as plain Python whose every access to memory is checked: it must lie inside memory whose address was taken.

Import this module first, in a process of its own with ``NUMBA_DISABLE_JIT=1``: it replaces the functions with which
kernels reach memory before any kernel has them. What a kernel may touch is the memory that owns an array whose address
was taken (`address_of`), with the slack that `allocate` adds, and only as long as the owner lives.
"""

from __future__ import annotations

import sys
import weakref
from bisect import bisect_right, insort
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import pyarrow as pa

from nyala.engine.kernels.ahead import kernel as decorator
from nyala.engine.kernels.ahead.form import FORM, Form
from nyala.engine.kernels.simd import simd_python

assert FORM is Form.INTERPRETED, "set NUMBA_DISABLE_JIT=1"
assert "nyala.engine.kernels.simd.simd" not in sys.modules, "kernels have the unchecked functions already"

RAN: set[str] = set()
"""The kernels that ran, as module.function."""

_LOOK_BACK = 64
_BYTES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "f32": 4, "f64": 8}


class OutOfBoundsError(AssertionError):
    """A kernel reached outside all memory that it was given."""


class Ranges:
    """Ranges of memory that may be touched."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._owners: dict[tuple[int, int, int], object] = {}

    def add(self, array: Any) -> None:
        """Allow the memory that owns an array, until it is freed."""
        if not isinstance(array, np.ndarray):
            array = np.frombuffer(array, np.uint8)
        while isinstance(array.base, np.ndarray):
            array = array.base
        owner: Any = array if array.base is None else array.base
        owner = owner.obj if isinstance(owner, memoryview) else owner
        if isinstance(owner, pa.Buffer):
            span = owner.address, owner.address + owner.size
        elif type(owner).__name__ == "_HeldPages":
            start = owner._region.address + owner._start
            span = start, start + owner._size
        else:
            start = array.__array_interface__["data"][0]
            span = start, start + array.nbytes
        key = (id(owner), *span)
        if key in self._owners:
            return
        insort(self._ranges, span)
        try:
            self._owners[key] = weakref.ref(owner, lambda _: self._remove(key))
        except TypeError:  # bytes and the like; they stay allowed
            self._owners[key] = owner

    def _remove(self, key: tuple[int, int, int]) -> None:
        del self._owners[key]
        self._ranges.remove(key[1:])

    def check(self, address: int, size: int, what: str) -> None:
        """Raise OutOfBoundsError unless a range has all these bytes."""
        if size <= 0:
            return
        address = int(address)  # slow as a number of numpy's
        ranges, last = self._ranges, address + size
        at = bisect_right(ranges, (address, 1 << 64))
        try:
            start, end = ranges[at - 1]
        except IndexError:  # there are none, or another thread has removed some meanwhile
            pass
        else:
            if start <= address and last <= end:  # nearly always
                return
        for start, end in reversed(ranges[max(at - _LOOK_BACK, 0) : at]):
            if start <= address and address + size <= end:
                return
        if any(start <= address and address + size <= end for start, end in list(self._ranges)):
            return  # another thread changed them meanwhile
        near = [f"{start:#x}-{end:#x}" for start, end in self._ranges[max(at - 3, 0) : at + 1]]
        raise OutOfBoundsError(f"{what}: {size} bytes at {address:#x} are in no memory given, such as {near}")


RANGES = Ranges()


def _checked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of ``simd_python`` that checks what it touches."""
    family, _, kind = name.partition("_")
    check = RANGES.check
    if family in ("load", "store"):
        size = _BYTES[kind]

        @wraps(function)
        def of_cell(address: int, *value: Any) -> Any:
            check(address, size, name)
            return function(address, *value)

        return of_cell

    def spans(*args: Any) -> list[tuple[int, int]]:
        numbers = [int(each) for each in args]
        if family == "view":
            return [(numbers[0], numbers[1] * _BYTES[kind])]
        if name == "copy_bytes":
            return [(numbers[0], numbers[2]), (numbers[1], numbers[2])]
        if name == "fill64":
            return [(numbers[0], 64)]
        if family == "changes":
            return [(numbers[0], 64 + _BYTES[kind])]
        return [(place, int(family.removeprefix("copy"))) for place in numbers]

    @wraps(function)
    def call(*args: Any) -> Any:
        for address, size in spans(*args):
            check(address, size, name)
        return function(*args)

    return call


def _taking(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that allows the memory whose address, or buffer, it returns."""

    @wraps(function)
    def call(array: Any) -> Any:
        RANGES.add(array)
        return function(array)

    return call


def _recording(compiled: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(compiled)
    def call(function: Any, **flags: Any) -> Any:
        ready, name = compiled(function, **flags), f"{function.__module__}.{function.__name__}"

        @wraps(function)
        def run(*args: Any) -> Any:
            RAN.add(name)
            return ready(*args)

        return run

    return call


for _name in list(vars(simd_python)):
    if _name.split("_")[0] in (
        "load",
        "store",
        "view",
        "changes",
        "copy",
        "copy8",
        "copy16",
        "copy32",
        "copy64",
        "fill64",
    ):
        setattr(simd_python, _name, _checked(_name, getattr(simd_python, _name)))
simd_python.address_of = _taking(simd_python.address_of)
pa.py_buffer = _taking(pa.py_buffer)  # ``memory.address_of``, and keys of single rows
decorator._compiled = _recording(decorator._compiled)
