"""The processors that kernels are compiled for ahead of time: levels of x86-64, each with all of the one before.

A level is usable where the processor and the system offer all its instructions, as ``/proc/cpuinfo`` lists them. On
other machines there is none, and kernels are compiled when they are needed.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Level:
    """One level: the compiler's name of the processor, and of each instruction set by its name in ``/proc/cpuinfo``."""

    name: str
    processor: str
    instructions: dict[str, str]

    @property
    def features(self) -> tuple[str, ...]:
        """The compiler's names of the instruction sets."""
        return tuple(self.instructions.values())

    def runs_on(self, flags: frozenset[str]) -> bool:
        """Whether a processor with these flags can run it."""
        return self.instructions.keys() <= flags


_V2 = {
    "pni": "sse3",
    "ssse3": "ssse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "cx16": "cx16",
    "lahf_lm": "sahf",
    "popcnt": "popcnt",
    "pclmulqdq": "pclmul",
}
_V3 = {
    **_V2,
    "avx": "avx",
    "avx2": "avx2",
    "bmi1": "bmi",
    "bmi2": "bmi2",
    "f16c": "f16c",
    "fma": "fma",
    "abm": "lzcnt",
    "movbe": "movbe",
    "xsave": "xsave",
}
_V4 = {**_V3, **{flag: flag for flag in ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")}}
_V4_BYTES = {
    **_V4,
    "gfni": "gfni",
    "vpclmulqdq": "vpclmulqdq",
    "avx512vbmi": "avx512vbmi",
    "avx512_vbmi2": "avx512vbmi2",
}

LEVELS = (
    Level("x86-64-v4-gfni", "x86-64-v4", _V4_BYTES),  # Ice Lake and Zen 4: a transposition is a few instructions
    Level("x86-64-v4", "x86-64-v4", _V4),
    Level("x86-64-v3", "x86-64-v3", _V3),
    Level("x86-64-v2", "x86-64-v2", _V2),
)
"""All levels, the best first."""


def usable_levels() -> list[Level]:
    """Return the levels that this machine can run, the best first."""
    if platform.machine() != "x86_64":
        return []
    try:
        found = re.search(r"^flags\s*:(.*)$", _CPU_INFO.read_text(), re.MULTILINE)
    except OSError:
        return []
    flags = frozenset(found[1].split()) if found else frozenset()
    return [level for level in LEVELS if level.runs_on(flags)]
