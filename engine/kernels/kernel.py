"""The one decorator of every compiled function, so that the flags live in one place."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

from . import cache

Function = TypeVar("Function", bound=Callable[..., Any])

cache.configure()

_FLAGS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": False,
}


def kernel(function: Function) -> Function:
    """Compile ``function`` with numba on first use and keep the machine code on disk.

    A kernel releases the GIL, raises nothing (it returns a negative code), and checks nothing: its
    caller has validated every length and offset.
    """
    return _compiled(function, **_FLAGS)


def inline(function: Function) -> Function:
    """Compile ``function`` so that numba inlines it into the kernels that call it."""
    return _compiled(function, **_FLAGS, inline="always")


def _compiled(function: Function, **flags: Any) -> Function:
    if numba.config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
        # Machine integers wrap around without a word; numpy's scalars warn.
        return np.errstate(over="ignore")(function)
    return numba.njit(**flags)(function)
