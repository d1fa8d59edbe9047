"""The form that kernels have in this process; it is decided once."""

import os
from enum import Enum, auto

from .library import library


class Form(Enum):
    LIBRARY = auto()
    """Machine code that was compiled ahead of time (`ahead`). The process imports no compiler."""
    JIT = auto()
    """numba compiles each kernel on its first use, or finds it in its cache."""
    INTERPRETED = auto()
    """Plain Python, slow, for a debugger or a coverage tool: ``NUMBA_DISABLE_JIT=1``."""


def _form() -> Form:
    if library():
        return Form.LIBRARY
    return Form.INTERPRETED if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0") else Form.JIT


FORM = _form()
