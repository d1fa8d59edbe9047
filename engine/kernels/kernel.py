"""The one decorator of every compiled function, so that the flags live in one place."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from . import cache

Function = TypeVar("Function", bound=Callable[..., Any])

cache.configure()


def kernel(function: Function) -> Function:
    """Compile ``function`` with numba on first use and keep the machine code on disk.

    A kernel releases the GIL, raises nothing (it returns a negative code), and checks nothing: its caller has
    validated every length and offset.
    """
    return numba.njit(cache=True, nogil=True, error_model="numpy", boundscheck=False)(function)


def inline(function: Function) -> Function:
    """Compile ``function`` so that numba inlines it into the kernels that call it."""
    return numba.njit(cache=True, nogil=True, error_model="numpy", boundscheck=False, inline="always")(
        function
    )
