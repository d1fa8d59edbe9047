"""Which instructions the kernels may name: what numba compiles for, not what the machine has."""

import pytest

from nyala.engine.kernels.simd import cpu


@pytest.mark.parametrize(
    ("stated", "expected"),
    [("", set()), ("+avx2,-avx512f,+gfni", {"avx2", "gfni"})],
)
def test_stated_features_win(monkeypatch, stated, expected):
    monkeypatch.setattr(cpu.config, "CPU_FEATURES", stated)
    assert cpu.target_features() == expected


def test_otherwise_the_machine_s_own(monkeypatch):
    monkeypatch.setattr(cpu.config, "CPU_FEATURES", None)
    monkeypatch.setattr(cpu, "get_host_cpu_features", lambda: "+sse2,-avx2")
    assert cpu.target_features() == {"sse2"}
