"""Which instructions the kernels may name: what numba compiles for, not what the machine has."""

from types import SimpleNamespace

import pytest
from numba.core import codegen, config

from nyala.engine.kernels.simd import cpu


@pytest.fixture
def jit(monkeypatch):
    """Without a library: numba's target counts."""
    monkeypatch.setattr(cpu, "library", lambda: None)
    monkeypatch.setattr(cpu, "FORM", cpu.Form.JIT)


def test_a_library_was_compiled_for_its_level(monkeypatch):
    monkeypatch.setattr(cpu, "library", lambda: SimpleNamespace(features=frozenset({"avx2"})))
    assert cpu.target_features() == {"avx2"}


@pytest.mark.parametrize(
    ("stated", "expected"),
    [("", set()), ("+avx2,-avx512f,+gfni", {"avx2", "gfni"})],
)
def test_stated_features_win(monkeypatch, jit, stated, expected):
    monkeypatch.setattr(config, "CPU_FEATURES", stated)
    assert cpu.target_features() == expected


def test_otherwise_the_machine_s_own(monkeypatch, jit):
    monkeypatch.setattr(config, "CPU_FEATURES", None)
    monkeypatch.setattr(codegen, "get_host_cpu_features", lambda: "+sse2,-avx2")
    assert cpu.target_features() == {"sse2"}
