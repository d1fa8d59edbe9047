"""The processors that kernels are compiled for ahead of time: levels of x86-64, each with all of the one before, and
64-bit Arm.

A level of x86-64 is usable where the processor and the system offer all its instructions, as ``/proc/cpuinfo`` lists
them. On other machines there is none, and kernels are compiled when they are needed.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Level:
    """A level of processors that a library of kernels is for: the machine it is of, the compiler's name of the
    processor, and of each instruction set by its name in ``/proc/cpuinfo``. ``always`` are the instruction sets that
    each such machine has."""

    name: str
    machine: str
    processor: str
    instructions: dict[str, str]
    always: tuple[str, ...] = ()

    @property
    def triple(self) -> str:
        """The compiler's name of the machine."""
        return f"{self.machine}-unknown-linux-gnu"

    @property
    def features(self) -> tuple[str, ...]:
        """The compiler's names of the instruction sets."""
        return (*self.always, *self.instructions.values())

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

_X86, _ARM = "x86_64", "aarch64"

LEVELS = (
    Level("x86-64-v4-gfni", _X86, "x86-64-v4", _V4_BYTES),  # Ice Lake and Zen 4: a transposition is a few instructions
    Level("x86-64-v4", _X86, "x86-64-v4", _V4),
    Level("x86-64-v3", _X86, "x86-64-v3", _V3),
    Level("x86-64-v2", _X86, "x86-64-v2", _V2),
    Level("aarch64", _ARM, "generic", {}, ("fp-armv8", "neon")),
)
"""All levels; of each machine the best first."""


def usable_levels() -> list[Level]:
    """Return the levels whose libraries of kernels this machine can run, the best first."""
    machine = platform.machine()
    flags = _flags()
    return [level for level in LEVELS if level.machine == machine and level.runs_on(flags)]


def _flags() -> frozenset[str]:
    """Return what the processor can do; nothing if the system does not say."""
    try:
        found = re.search(r"^flags\s*:(.*)$", _CPU_INFO.read_text(), re.MULTILINE)
    except OSError:
        return frozenset()
    return frozenset(found[1].split()) if found else frozenset()
