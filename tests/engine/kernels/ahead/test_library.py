"""Libraries of kernels: which one a process takes, and that it takes none it cannot trust."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nyala.engine.kernels.ahead import levels, trial
from nyala.engine.kernels.ahead.image import DamagedLibraryError, read_library, write_library
from nyala.engine.kernels.ahead.levels import LEVELS, usable_levels
from nyala.engine.kernels.ahead.library import library_name

FORM = """
import json, sys
from nyala.engine.kernels.ahead.library import library
from nyala.engine.kernels.ahead.form import FORM
print(json.dumps([FORM.name, len(library().kernels) if library() else 0]))
"""
FILES = (
    "cells/test_gather.py",
    "keys/test_bounds.py",
    "keys/test_merging.py",
    "simd/test_simd.py",
    "pages/test_transpose.py",
)
KERNELS = Path(__file__).parents[1]


LEVEL = """
import json
from nyala.engine.kernels.ahead.library import library
print(json.dumps(library().level))
"""


def level_taken(base: Path) -> str:
    """Return the name of the level that a process of its own takes."""
    return said(LEVEL, base)


def form(base: Path, **environment: str) -> tuple[str, int]:
    """Return the form of the kernels in a process of its own, and how many a library has."""
    return tuple(said(FORM, base, **environment))


def said(script: str, base: Path, **environment: str) -> Any:
    """Run a script in a process with its own cache and form of kernels; return the JSON that it prints."""
    inherited = {name: value for name, value in os.environ.items() if name != "NYALA_KERNELS"}
    environment = {**inherited, "NYALA_CACHE_DIR": str(base), **environment}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def copy(library: Path, tmp_path: Path) -> Path:
    """A copy of the library, in a cache of the test's own."""
    directory = tmp_path / "nyala" / "libraries"
    directory.mkdir(parents=True, mode=0o700)
    return Path(shutil.copy(library, directory))


def test_a_process_takes_the_library(copy: Path, tmp_path: Path) -> None:
    name, count = form(tmp_path)
    assert name == "LIBRARY" and count > 100


@pytest.mark.parametrize(
    "environment", [{"NYALA_KERNELS": "jit"}, {"NUMBA_CPU_NAME": "x86-64"}, {"NUMBA_CPU_FEATURES": ""}]
)
def test_switches_do_without_it(copy: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    assert form(tmp_path, **environment) == ("JIT", 0)


def test_the_interpreter_does_without_it(copy: Path, tmp_path: Path) -> None:
    assert form(tmp_path, NUMBA_DISABLE_JIT="1") == ("INTERPRETED", 0)


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "absent"])
def test_a_damaged_library_is_not_taken(copy: Path, tmp_path: Path, damage: str) -> None:
    content = bytearray(copy.read_bytes())
    content[-100] ^= 1
    made = {"truncated": bytes(content[: len(content) // 2]), "empty": b"", "flipped": bytes(content)}
    copy.unlink()
    if damage in made:
        copy.write_bytes(made[damage])
        with pytest.raises(DamagedLibraryError):
            read_library(copy)
    assert form(tmp_path) == ("JIT", 0)


def test_a_library_of_other_sources_is_not_taken(copy: Path, tmp_path: Path) -> None:
    header, image = read_library(copy)
    write_library(copy, header, image)
    assert form(tmp_path)[0] == "LIBRARY"
    header.entries.pop("blocks.pack_blocks")
    other = type(header)("0" * 16, header.level, header.entries, header.imports, header.own)
    write_library(copy, other, image)
    assert form(tmp_path) == ("JIT", 0)


def test_a_directory_that_others_may_write_to_is_not_used(copy: Path, tmp_path: Path) -> None:
    copy.parent.chmod(0o777)
    assert form(tmp_path) == ("JIT", 0)


def test_a_library_that_restores_other_bytes_is_not_taken(copy: Path, tmp_path: Path) -> None:
    """Another kernel, which only reads, stands in for the one that restores."""
    header, image = read_library(copy)
    entries = header.entries
    entries["blocks.unpack_blocks"] = entries["gather.largest_u64"]
    write_library(copy, header, image)
    assert form(tmp_path) == ("JIT", 0)


def test_the_next_level_is_taken_where_one_fails_its_trial(copy: Path, tmp_path: Path) -> None:
    """Both have the same kernels, under the names of two levels that this machine runs."""
    best, next_best = usable_levels()[:2]
    header, image = read_library(copy)
    lower = copy.with_name(library_name(next_best, header.sources))
    write_library(lower, replace(header, level=next_best.name), image)
    assert level_taken(tmp_path) == best.name
    wrong = {**header.entries, "blocks.unpack_blocks": header.entries["gather.largest_u64"]}
    write_library(copy, replace(header, entries=wrong), image)
    assert level_taken(tmp_path) == next_best.name


def test_the_trial_compares_bytes() -> None:
    def pack(*_: int) -> int:
        return 0

    assert not trial.works({"blocks.pack_blocks": pack, "blocks.unpack_blocks": pack})


def test_each_level_has_all_of_the_one_before() -> None:
    for better, level in pairwise(level for level in LEVELS if level.machine == "x86_64"):
        assert better.instructions.items() > level.instructions.items()
        assert {*level.features} < {*better.features}


@pytest.mark.parametrize(
    ("flags", "machine", "expected"),
    [
        ("sse2 pni", "x86_64", []),
        (" ".join(LEVELS[3].instructions), "x86_64", ["x86-64-v2"]),
        (" ".join([*LEVELS[1].instructions, "gfni"]), "x86_64", ["x86-64-v4", "x86-64-v3", "x86-64-v2"]),
        (" ".join(LEVELS[0].instructions), "x86_64", [level.name for level in LEVELS[:4]]),
        ("fp asimd crc32", "aarch64", ["aarch64"]),
        (" ".join(LEVELS[0].instructions), "riscv64", []),
    ],
)
def test_levels_by_the_flags_of_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, machine: str, expected: list[str]
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu {flags}\n\nprocessor\t: 1\n")
    monkeypatch.setattr(levels, "_CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(levels.platform, "machine", lambda: machine)
    assert [level.name for level in usable_levels()] == expected
    monkeypatch.setattr(levels, "_CPU_INFO", tmp_path / "absent")
    assert [level.name for level in usable_levels()] == [name for name in expected if name == "aarch64"]


@pytest.mark.night
def test_kernels_pass_their_tests_without_a_library_too(library: Path) -> None:
    """Where there is one, the other tests use it."""
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        *(str(KERNELS / name) for name in FILES),
    ]
    done = subprocess.run(
        words, env={**os.environ, "NYALA_KERNELS": "jit"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
