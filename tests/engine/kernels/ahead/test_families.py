"""Families of kernels: each member is for its own width, has its own name, and is found in the cache by it."""

import os
import subprocess
import sys

import pytest

from nyala.engine.kernels.ahead.families import family

NAMES = """
import sys
from nyala.engine.kernels.ahead.kernel import KERNELS
from nyala.engine.kernels.compile.inventory import import_all
import_all()
for kernel in KERNELS:
    assert getattr(sys.modules[kernel.__module__], kernel.__name__) is kernel, kernel.__name__
print(len(KERNELS))
"""

GATHER = """
import numpy as np
from nyala.engine.kernels.cells import gather
rows = np.array([2, 0])
hits = misses = 0
for kernel, dtype in ((gather.gather_u16, np.uint16), (gather.gather_u64, np.uint64)):
    cells, result = np.array([10, 11, 12], dtype), np.zeros(2, dtype)
    kernel(cells.ctypes.data, rows.ctypes.data, 2, result.ctypes.data)
    assert result.tolist() == [12, 10], kernel
    hits, misses = hits + sum(kernel.stats.cache_hits.values()), misses + sum(kernel.stats.cache_misses.values())
print(hits, misses)
"""


def run(script: str, **environment: str) -> list[int]:
    process = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return [int(number) for number in process.stdout.split()]


def test_each_kernel_has_the_name_that_its_module_gives_it():
    """Callers take a kernel by the one name, the library by the other; widths in another order would part them."""
    (kernels,) = run(NAMES, NUMBA_DISABLE_JIT="1")
    assert kernels > 100


def test_another_process_finds_the_members_in_the_cache(tmp_path):
    environment = {"NYALA_KERNELS": "jit", "NYALA_CACHE_DIR": str(tmp_path)}
    assert run(GATHER, **environment) == [0, 2]
    assert run(GATHER, **environment) == [2, 0]


def test_a_loop_that_captures_more_than_numbers_is_refused():
    """numba's cache would not find it again."""

    def loop_for(width):
        step = [width]

        def loop(target):
            return target + step[0]

        return loop

    with pytest.raises(TypeError, match="the loop of loop_u8 captures more than numbers"):
        family("loop_u{}", loop_for)
