"""The one decorator of every compiled function, so that the flags live in one place."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from .form import FORM, Form
from .image import keeping_gil
from .library import library

Function = TypeVar("Function", bound=Callable[..., Any])

if FORM is Form.JIT:
    import numba

    from . import cache

    cache.configure()

FLAGS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": False,
}

KERNELS: list[Any] = []
"""All kernels imported so far, in the order of their definition: callees before their callers."""


def kernel(function: Function) -> Function:
    """Take ``function`` from the library, or compile it with numba on first use and keep the machine code on disk.

    A kernel releases the GIL, raises nothing (it returns a negative code), and checks nothing: its
    caller has validated every length and offset. Arguments are int64, addresses included, unless
    annotated otherwise: `warm_up` compiles every kernel from its annotations; it leaves out those
    whose name starts with an underscore, which other kernels call.
    """
    return _ready(function, keeps_gil=False)


def short_kernel(function: Function) -> Function:
    """Like ``kernel``, but keep the GIL: for a few microseconds of work for one row.

    To release it wakes a thread that waits for it, which most often finds it taken again: with many threads that costs
    both of them more than the work.
    """
    return _ready(function, keeps_gil=True)


def _ready(function: Function, keeps_gil: bool) -> Function:
    found = library()
    if found and (ready := found.kernel(function)):
        return cast(Function, keeping_gil(ready) if keeps_gil else ready)
    compiled = _compiled(function, **FLAGS | {"nogil": not keeps_gil})
    KERNELS.append(compiled)
    return compiled


def inline(function: Function) -> Function:
    """Compile ``function`` so that numba inlines it into the kernels that call it."""
    return _compiled(function, **FLAGS, inline="always")


def _compiled(function: Function, **flags: Any) -> Function:
    if FORM is not Form.JIT:
        # Beside a library, only what other kernels call comes here.
        # Machine integers wrap around without a word; numpy's scalars warn.
        return np.errstate(over="ignore")(function)
    dispatcher = numba.njit(**flags)(function)
    cache.survive_damage(dispatcher)
    return cast(Function, dispatcher)
