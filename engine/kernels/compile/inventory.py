"""All kernels, and the types of the arguments that Python calls them with."""

import importlib
import inspect
import pkgutil
from typing import Any

import numpy as np

from ..ahead.kernel import KERNELS


def import_all() -> None:
    """Import every module of the kernels, so that KERNELS is complete and all can be compiled."""
    package = __name__.rpartition(".compile.")[0]
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)


def kernels_for_python() -> list[tuple[Any, tuple[Any, ...]]]:
    """Return the kernels to compile: those imported so far that Python calls, each with the types of its arguments."""
    return [(kernel, signature) for kernel in KERNELS if (signature := _signature_of(kernel))]


def _signature_of(kernel: Any) -> tuple[Any, ...] | None:
    """Return the argument types of a kernel that Python calls, None for a helper of other kernels.

    Helpers have names with an underscore, or arguments that no Python caller could give.
    """
    from numba import types

    if kernel.__name__.startswith("_"):
        return None
    known = {inspect.Parameter.empty: types.int64, int: types.int64, float: types.float64, bool: types.boolean}
    known[np.uint64] = types.uint64
    parameters = inspect.signature(kernel.py_func, eval_str=True).parameters.values()
    signature = tuple(known.get(parameter.annotation) for parameter in parameters)
    return None if None in signature else signature
