"""The one decorator of every compiled function, so that the flags live in one place."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import config

from . import cache

Function = TypeVar("Function", bound=Callable[..., Any])

cache.configure()

_FLAGS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": False,
}

KERNELS: list[Any] = []
"""All kernels imported so far, in the order of their definition: callees before their callers."""


def kernel(function: Function) -> Function:
    """Compile ``function`` with numba on first use and keep the machine code on disk.

    A kernel releases the GIL, raises nothing (it returns a negative code), and checks nothing: its
    caller has validated every length and offset. Arguments are int64, addresses included, unless
    annotated otherwise: `warm_up` compiles every kernel from its annotations; it leaves out those
    whose name starts with an underscore, which other kernels call.
    """
    compiled = _compiled(function, **_FLAGS)
    KERNELS.append(compiled)
    return compiled


def inline(function: Function) -> Function:
    """Compile ``function`` so that numba inlines it into the kernels that call it."""
    return _compiled(function, **_FLAGS, inline="always")


def _compiled(function: Function, **flags: Any) -> Function:
    if config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
        # Machine integers wrap around without a word; numpy's scalars warn.
        return np.errstate(over="ignore")(function)
    dispatcher = numba.njit(**flags)(function)
    cache.survive_damage(dispatcher)
    return cast(Function, dispatcher)
