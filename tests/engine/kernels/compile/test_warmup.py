"""Everything compiled ahead; processors without our favourite instructions; no compiler at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nyala.engine.kernels.ahead.levels import usable_levels
from nyala.engine.kernels.compile import self_test, warmup
from tests.dose import by_night

ROUND_TRIPS = """
import hashlib
import numpy as np
from nyala.engine.codecs.dictionary import DictionaryBuilder
from nyala.engine.codecs.registry import codec_by_code
from nyala.engine.kernels.compile.self_test import self_test
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector

assert self_test()
rows = 1100
digest = hashlib.sha256()
texts = [b"user%04d" % (row // 3) + b"x" * (row % 19) for row in range(rows)]
offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
strings = BytesVector(offsets, np.frombuffer(b"".join(texts), np.uint8))
for code in range(1, 9):
    codec = codec_by_code(code)
    for physical in filter(codec.supports, PhysicalType):
        cells = strings
        if codec.name == "dictionary":
            cells = FixedVector(DictionaryBuilder().add(strings))
        elif physical is not PhysicalType.BYTES:
            raw = np.zeros((rows, physical.width), np.uint8)
            raw[:, 0] = np.arange(rows) // 7 % 2
            cells = FixedVector(raw.reshape(-1).view(physical.dtype))
        payload = codec.encode(cells, physical)
        codec.check(payload, physical, rows)
        whole = codec.decode(payload, physical, rows, 0, rows)
        one = codec.gather(payload, physical, rows, np.array([1050]))
        if isinstance(cells, BytesVector):
            assert whole.data.tobytes() == cells.data.tobytes()
            assert one.data.tobytes() == texts[1050]
        else:
            assert whole.values.tobytes() == cells.values.tobytes()
            assert one.values.tobytes() == cells.values[1050:1051].tobytes()
        digest.update(payload.tobytes())
print(digest.hexdigest())
"""

ENVIRONMENTS = {
    "plain x86-64": {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": ""},
    "AVX2 without GFNI": {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx,+avx2,+bmi,+bmi2,+popcnt,+sse4.2,+ssse3",
    },
    "interpreted": {"NUMBA_DISABLE_JIT": "1"},
    "compiled on use": {"NYALA_KERNELS": "jit"},
}


def run(script: str, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "NYALA_KERNELS"}
    process = subprocess.run(
        [sys.executable, "-c", script],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


@pytest.fixture(scope="module")
def expected(library: Path) -> str:
    return run(ROUND_TRIPS + "import sys; assert 'numba' not in sys.modules")


@pytest.mark.parametrize("name", by_night(ENVIRONMENTS, ["interpreted"]))
def test_every_processor_writes_the_same_bytes(name, expected):
    if name.startswith("AVX2") and not any(level.name == "x86-64-v3" for level in usable_levels()):
        pytest.skip("this processor cannot run AVX2")
    assert run(ROUND_TRIPS, **ENVIRONMENTS[name]) == expected


@pytest.mark.night
def test_warm_up_compiles_all_that_the_codecs_call():
    """After it, a round trip of everything compiles nothing more."""
    script = f"""
from nyala.engine.kernels.compile.warmup import warm_up
from nyala.engine.kernels.ahead.kernel import KERNELS
assert warm_up() > 20
before = [len(kernel.signatures) for kernel in KERNELS]
{ROUND_TRIPS}
after = [len(kernel.signatures) for kernel in KERNELS]
print([k.__name__ for k, a, b in zip(KERNELS, before, after) if a != b])
"""
    assert run(script, NYALA_KERNELS="jit").splitlines()[-1] == "[]"


@pytest.mark.night
def test_progress_is_reported_to_the_end():
    script = """
from nyala.engine.kernels.compile import warmup
steps = []
count = warmup.warm_up(lambda done, total, name: steps.append((done, total, name)))
assert steps[0][0] == 0 and steps[0][2]
assert steps[-1] == (count, count, "")
assert [done for done, _, _ in steps] == list(range(count + 1))
"""
    run(script, NYALA_KERNELS="jit")


WRONG = """
from nyala.engine.kernels.ahead import cache
from nyala.engine.kernels.compile import inventory, warmup
from nyala.engine.kernels.ahead.kernel import KERNELS

inventory.import_all()
outcomes, wiped, recompiled = iter({outcomes}), [], []
warmup.self_test = lambda: next(outcomes)
cache.wipe = lambda: wiped.append(True)
for kernel in KERNELS:
    kernel.recompile = lambda: recompiled.append(True)
try:
    warmup.warm_up()
except RuntimeError as error:
    print(error)
assert wiped == [True] and len(recompiled) == len(KERNELS)
"""


@pytest.mark.night
def test_wrong_machine_code_is_thrown_away():
    assert run(WRONG.format(outcomes=[False, True]), NYALA_KERNELS="jit") == ""


@pytest.mark.night
def test_code_that_stays_wrong_is_an_error():
    words = run(WRONG.format(outcomes=[False, False]), NYALA_KERNELS="jit")
    assert words == "freshly compiled kernels give wrong results"


def test_a_library_that_goes_wrong_is_an_error(monkeypatch):
    monkeypatch.setattr(warmup, "FORM", warmup.Form.LIBRARY)
    monkeypatch.setattr(warmup, "library", lambda: object())
    monkeypatch.setattr(warmup, "self_test", lambda: False)
    with pytest.raises(RuntimeError, match="NYALA_KERNELS=jit"):
        warmup.warm_up()


def test_the_self_test_notices_a_wrong_kernel(monkeypatch):
    assert self_test.self_test()
    monkeypatch.setattr(self_test.run_length, "take_cells", lambda *_: None)
    assert not self_test.self_test()


def test_wiping_leaves_an_empty_directory(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "entry.nbi").write_bytes(b"x")
    (tmp_path / "entry.nbc").write_bytes(b"x")
    script = f"""
from nyala.engine.kernels.ahead import cache
cache.config.CACHE_DIR = {str(tmp_path)!r}
cache.wipe()
"""
    run(script, NYALA_KERNELS="jit")
    assert list(tmp_path.iterdir()) == []
