"""What the processor that the kernels are compiled for can do.

This is what numba compiles for, which ``NUMBA_CPU_NAME`` and ``NUMBA_CPU_FEATURES`` can set below
what the machine has. A kernel that names an instruction the target lacks would abort the compiler,
so the variants are chosen here, once, at import.
"""

from numba.core import config
from numba.core.codegen import get_host_cpu_features


def target_features() -> frozenset[str]:
    """Return the names of the instruction sets of numba's target."""
    stated = config.CPU_FEATURES  # pyright: ignore[reportAttributeAccessIssue]
    flags = get_host_cpu_features() if stated is None else stated
    return frozenset(flag[1:] for flag in flags.split(",") if flag.startswith("+"))


FEATURES = target_features()

HAS_WIDE_VECTORS = "avx2" in FEATURES or "neon" in FEATURES
"""Whether byte shuffles of whole registers are one instruction."""

HAS_AFFINE = {"gfni", "avx512f", "avx512bw"} <= FEATURES
"""Whether one instruction transposes eight 8x8 bit matrices (GFNI on 64-byte registers)."""

HAS_CARRYLESS_PRODUCT = "pclmul" in FEATURES and not config.DISABLE_JIT  # pyright: ignore[reportAttributeAccessIssue]
"""Whether one instruction multiplies polynomials over two elements."""

HAS_WIDE_CARRYLESS_PRODUCT = HAS_CARRYLESS_PRODUCT and {"vpclmulqdq", "avx512f"} <= FEATURES
"""Whether one instruction does so four times, in a register of 64 bytes."""

HAS_WIDE_MINIMUM = "avx512f" in FEATURES and not config.DISABLE_JIT  # pyright: ignore[reportAttributeAccessIssue]
"""Whether one instruction finds the lesser of each of eight pairs of 8-byte integers."""
