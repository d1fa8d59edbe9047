"""LZ4 blocks, by liblz4 itself, callable inside kernels without the GIL.

The ``lz4`` package carries the C library and exports its functions. Their addresses go to LLVM
under names of our own; a kernel finds them by name when it is linked, also when it comes out of the
cache of an earlier process. `lz4_decompress` never writes past its target nor reads past its
source, whatever the bytes, so a damaged block costs an error code and nothing else.

``lz4_compress(source, target, source_size, target_capacity, acceleration) -> size, 0 if too big``
``lz4_decompress(source, target, source_size, target_capacity) -> size, negative if damaged``
"""

import ctypes
from collections.abc import Callable
from typing import Any

import lz4.block
import numpy as np

from ..ahead.form import FORM, Form
from ..ahead.kernel import kernel

if FORM is Form.JIT:
    from llvmlite import binding
    from numba import types

_LIBRARY = ctypes.CDLL(lz4.block._block.__file__)  # pyright: ignore[reportAttributeAccessIssue]
_LIBRARY.LZ4_compress_fast.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int32] * 3
_LIBRARY.LZ4_decompress_safe.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int32] * 2


def _external(symbol: str, argument_types: list[Any]) -> Any:
    address = ctypes.cast(getattr(_LIBRARY, symbol), ctypes.c_void_p).value
    binding.add_symbol(f"nyala_{symbol}", address)
    return types.ExternalFunction(f"nyala_{symbol}", types.int32(*argument_types))


def _interpreted(symbol: str) -> Callable[..., int]:
    function = getattr(_LIBRARY, symbol)
    return lambda *arguments: function(*map(int, arguments))


if FORM is Form.JIT:
    lz4_compress = _external("LZ4_compress_fast", [types.int64] * 2 + [types.int32] * 3)
    lz4_decompress = _external("LZ4_decompress_safe", [types.int64] * 2 + [types.int32] * 2)
else:
    lz4_compress = _interpreted("LZ4_compress_fast")
    lz4_decompress = _interpreted("LZ4_decompress_safe")


@kernel
def decompress_block(source: int, source_size: int, target: int, target_capacity: int) -> int:
    """Decompress one LZ4 block of a page; return its raw size, negative when the bytes are none."""
    return lz4_decompress(source, target, np.int32(source_size), np.int32(target_capacity))
