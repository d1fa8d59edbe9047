"""Compile every kernel ahead of its first use.

Cold, this takes tens of seconds, and compiling holds the GIL; from the cache it takes well under
one. So: run it when an image is built or a server starts, not under the first query.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.core import config

from . import cache
from .kernel import KERNELS
from .self_test import self_test

Progress = Callable[[int, int, str], None]
"""Called with kernels done, kernels in all, and the name of the next one."""

_TYPES: dict[Any, types.Type] = {
    inspect.Parameter.empty: types.int64,
    int: types.int64,
    float: types.float64,
    bool: types.boolean,
    np.uint64: types.uint64,
}


def warm_up(progress: Progress | None = None) -> int:
    """Compile all kernels or load them from the cache, and try them out; return how many.

    When the machine code gives wrong results, the cache is emptied and everything compiled anew.
    Raises RuntimeError if it is wrong even then.
    """
    if config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
        return 0
    _import_all()
    entries = [(kernel, signature) for kernel in KERNELS if (signature := _signature(kernel))]
    for done, (kernel, signature) in enumerate(entries):
        if progress:
            progress(done, len(entries), kernel.__name__)
        kernel.compile(signature)
    if progress:
        progress(len(entries), len(entries), "")
    if not self_test():
        cache.wipe()
        for kernel in KERNELS:
            kernel.recompile()
        if not self_test():
            raise RuntimeError("freshly compiled kernels give wrong results")
    return len(entries)


def _import_all() -> None:
    """Import every module below this package, so that KERNELS is complete."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)


def _signature(kernel: Any) -> tuple[types.Type, ...] | None:
    """Return the argument types of a kernel that Python calls, None for a helper of other kernels.

    Helpers have names with an underscore, or arguments that no Python caller could give.
    """
    if kernel.__name__.startswith("_"):
        return None
    parameters = inspect.signature(kernel.py_func, eval_str=True).parameters.values()
    signature = tuple(_TYPES.get(parameter.annotation) for parameter in parameters)
    return None if None in signature else signature  # pyright: ignore[reportReturnType]
