"""The abilities of the processor for which the kernels are compiled.

This is the level of the library, or what numba compiles for, which ``NUMBA_CPU_NAME`` and
``NUMBA_CPU_FEATURES`` can set below what the machine has. A kernel that names an instruction the
target lacks would abort the compiler, so the variants are chosen here, once, at import.
"""

from ..ahead.form import FORM, Form
from ..ahead.library import library


def target_features() -> frozenset[str]:
    """Return the names of the processor's instruction sets that kernels may use; none if they are not compiled."""
    found = library()
    if found:
        return found.features
    if FORM is Form.INTERPRETED:
        return frozenset()
    from numba.core import codegen, config

    stated = config.CPU_FEATURES  # pyright: ignore[reportAttributeAccessIssue]
    flags = codegen.get_host_cpu_features() if stated is None else stated
    return frozenset(flag[1:] for flag in flags.split(",") if flag.startswith("+"))


FEATURES = target_features()

HAS_WIDE_VECTORS = "avx2" in FEATURES
"""Whether shuffling bytes, and collecting their sign bits, are one instruction for 32 bytes or more.

NEON has none for sign bits: with its 16 bytes, vectors take as many instructions to transpose as plain integers do, and
up to three times as many back.
"""

HAS_AFFINE = {"gfni", "avx512f", "avx512bw"} <= FEATURES
"""Whether one instruction transposes eight 8x8 bit matrices (GFNI on 64-byte registers)."""

HAS_CARRYLESS_PRODUCT = "pclmul" in FEATURES
"""Whether one instruction multiplies polynomials over two elements."""

HAS_WIDE_CARRYLESS_PRODUCT = HAS_CARRYLESS_PRODUCT and {"vpclmulqdq", "avx512f"} <= FEATURES
"""Whether one instruction does so four times, in a register of 64 bytes."""

HAS_WIDE_MINIMUM = "avx512f" in FEATURES
"""Whether one instruction finds the lesser of each of eight pairs of 8-byte integers."""
