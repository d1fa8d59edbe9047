"""Families of kernels: one loop, compiled for each width of cells."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .kernel import kernel

CELL_BYTES = (1, 2, 4, 8, 16)
"""All widths of cells."""

Function = TypeVar("Function", bound=Callable[..., Any])


def family(names: str, loop_for: Callable[[int], Function], widths: Sequence[int] = CELL_BYTES) -> tuple[Function, ...]:
    """Return the kernel of each width, in bytes: the function that ``loop_for`` returns for it.

    ``names`` is the name of a kernel with ``{}`` for the bits of a cell. The module assigns the kernels to these names.
    The width is a constant to the compiler, so the code of a kernel is for its own width only. Raises TypeError if
    ``loop_for`` gives the function anything but numbers.
    """
    return tuple(kernel(_named(names.format(8 * width), loop_for(width))) for width in widths)


def _named(name: str, loop: Function) -> Function:
    if not all(isinstance(cell.cell_contents, int) for cell in loop.__closure__ or ()):
        # numba looks these up in its cache by their bytes, and other objects have other bytes in each process.
        raise TypeError(f"the loop of {name} captures more than numbers: move the rest to its module")
    loop.__name__ = loop.__qualname__ = name  # the library, and the cache of numba, have it by this name
    return loop
