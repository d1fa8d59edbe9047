"""Every kernel runs once with each of its accesses to memory checked (`checked`), in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

NOT_RUN = {
    "aggregate.add_words",
    "aggregate.sum_floats",
    "aggregate.sum_integers",
    "bloom.probe_filter",
    "bounds.count_bounds",
    "deltas.last_seen",
    "frames.exception_of",
    "fsst.check_strings",
    "fsst.measure_strings",
    "fsst.pack_strings",
    "fsst.train",
    "fsst.unpack_strings",
    "fsst.write_symbols",
    "gather_many.gather_codes_at_places",
    "gather_many.gather_offsets_of_values",
    "gather_many.gather_values",
    "hash_index.add",
    "hash_index.next_candidates",
    "hash_index.remove",
    "key_search.last_strings_at_or_before",
    "key_search.rows_of_strings",
    "key_search.rows_of_words",
    "keys.strings_ascend",
    "keys.write_int128",
    "keys.write_int16",
    "keys.write_int32",
    "keys.write_int8",
    "keys.write_raw",
    "membership.find_members",
    "membership.put_members",
    "merge_vectors.merge_overlapping",
    "merging.merge_words",
    "xxhash64.mix_int32",
    "xxhash64.mix_int64",
    "xxhash64.mix_strings",
}
"""Kernels that the work does not reach yet. Add none: let `work` run a new one."""

_OVERRUN = """
import tests.bounds.checked as checked
import numpy as np
from nyala.engine.kernels.hashing import hash_u64
from nyala.engine.vectors.memory import address_of

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
    outcome = json.loads(_run("-m", "tests.bounds.work"))
    kernels, ran = (
        {name.removeprefix("nyala.engine.kernels.") for name in outcome[which]} for which in ("kernels", "ran")
    )
    assert len(kernels) > 100
    assert kernels >= NOT_RUN, "kernels that are gone"
    assert not kernels - ran - NOT_RUN, (
        "kernels that never ran under bounds checking: let tests/bounds/work.py run them"
    )


def test_an_overrun_and_freed_memory_are_found() -> None:
    found = _run("-c", _OVERRUN).splitlines()
    assert len(found) == 2
    assert all("are in no memory given" in line for line in found)
