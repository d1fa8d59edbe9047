"""Every kernel runs once with each of its accesses to memory checked (`checked`), in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

_OVERRUN = """
import tests.campaigns.bounds.checked as checked
import numpy as np
from nyala.engine.kernels.keys.hashing import hash_u64
from nyala.engine.vectors.memory.memory import address_of

words, hashes = np.zeros(4, np.uint64), np.zeros(4, np.uint64)
hash_u64(address_of(words), 4, address_of(hashes))
freed = address_of(np.zeros(4, np.uint64))
for place, count in ((address_of(words), 5), (freed, 4)):
    try:
        hash_u64(place, count, address_of(hashes))
    except checked.OutOfBoundsError as error:
        print(error)
"""


def _run(*arguments: str) -> str:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_all_kernels_stay_inside_the_memory_that_they_are_given() -> None:
    outcome = json.loads(_run("-m", "tests.campaigns.bounds.work"))
    kernels, ran = (
        {name.removeprefix("nyala.engine.kernels.") for name in outcome[which]} for which in ("kernels", "ran")
    )
    assert len(kernels) > 100
    assert not kernels - ran, (
        "kernels that never ran under bounds checking: let tests/campaigns/bounds/work.py run them"
    )


def test_an_overrun_and_freed_memory_are_found() -> None:
    found = _run("-c", _OVERRUN).splitlines()
    assert len(found) == 2
    assert all("are in no memory given" in line for line in found)
