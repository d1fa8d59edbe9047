"""Pages to encode, comparison by bytes, and memory that ends where a read must end."""

import ctypes
import mmap
from collections.abc import Callable

import numpy as np
import pytest

from nyala.engine.codecs.codec import Codec
from nyala.engine.codecs.dictionary import DictionaryBuilder
from nyala.engine.codecs.registry import codec_by_name
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector, Vector

NAMES = ("plain", "bitshuffle", "run_length", "dictionary", "prefix", "frame_of_reference", "alp", "fsst")
PAIRS = [(name, physical) for name in NAMES for physical in PhysicalType if codec_by_name(name).supports(physical)]
KINDS = ("random", "small", "runs", "equal", "extremes", "sorted")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for ``codec`` and ``physical`` for every pair that goes together."""
    if {"codec", "physical"} <= set(metafunc.fixturenames):
        metafunc.parametrize(
            ("codec", "physical"),
            [pytest.param(codec_by_name(n), p, id=f"{n}-{p}") for n, p in PAIRS],
        )


def fixed_cells(physical: PhysicalType, rows: int, kind: str, seed: int) -> FixedVector:
    random = np.random.default_rng(seed)
    width = physical.width
    if physical is PhysicalType.BOOL:
        values = random.integers(0, 2, rows).astype(np.uint8)
        values = np.repeat(values, 50)[:rows] if kind == "runs" else values
        return FixedVector(values * (kind != "equal"))
    raw = random.integers(0, 256, (rows, width), dtype=np.uint8)
    if kind in ("small", "sorted"):
        raw[:, 1:] = 0
    if kind == "sorted":
        raw[:, 0].sort()
    if kind == "runs":
        raw = np.repeat(raw, random.integers(1, 40, rows), axis=0)[:rows]
    if kind == "equal":
        raw[:] = raw[:1]
    if kind == "extremes":
        # 0, -1, the smallest and the largest integer; of floats: -0.0 and NaNs of several payloads.
        raw[:] = np.array([[0], [255]], np.uint8)[random.integers(0, 2, rows)]
        raw[:, -1] = random.choice(np.array([0, 0x7F, 0x80, 0xFF], np.uint8), rows)
    return FixedVector(np.ascontiguousarray(raw).reshape(-1).view(physical.dtype))


def byte_strings(rows: int, kind: str, seed: int) -> BytesVector:
    random = np.random.default_rng(seed)
    longest = {"random": 40, "small": 3, "runs": 17, "equal": 9, "extremes": 700, "sorted": 30}[kind]
    lengths = random.integers(0, longest + 1, rows)
    if kind == "extremes":  # mostly empty, a few long ones
        lengths[random.random(rows) < 0.9] = 0
        lengths[: rows and 1] = 70_000
    cells = [random.integers(0, 3, length, dtype=np.uint8).tobytes() for length in lengths]
    if kind == "equal":
        cells = cells[:1] * rows
    if kind == "runs":
        cells = [cells[row // 7 * 7] for row in range(rows)]
    if kind == "sorted":
        cells = sorted(b"user%04d" % row + cell for row, cell in enumerate(cells))
    return strings(cells)


def strings(cells: list[bytes], first: int = 5) -> BytesVector:
    """Return a vector whose offsets start above 0, as those of a slice do."""
    offsets = np.cumsum([first, *map(len, cells)]).astype(np.int32)
    return BytesVector(offsets, np.frombuffer(b"x" * first + b"".join(cells), np.uint8))


@pytest.fixture(scope="session")
def make_page() -> Callable[[Codec, PhysicalType, int, str, int], Vector]:
    """Return cells as ``codec`` takes them: codes of a dictionary, or the vector itself."""

    def make(codec: Codec, physical: PhysicalType, rows: int, kind: str, seed: int) -> Vector:
        if physical is not PhysicalType.BYTES:
            return fixed_cells(physical, rows, kind, seed)
        if codec.name != "dictionary":
            return byte_strings(rows, kind, seed)
        codes = DictionaryBuilder(max_bytes=1 << 24).add(byte_strings(rows, kind, seed))
        assert codes is not None
        return FixedVector(codes)

    return make


@pytest.fixture(scope="session")
def cells_of() -> Callable[[Vector], list[bytes]]:
    """Return the bytes of every cell, so that NaNs and signed zeros count as what they are."""

    def cells(vector: Vector) -> list[bytes]:
        if isinstance(vector, FixedVector):
            raw = vector.values.tobytes()
            width = vector.values.dtype.itemsize
            return [raw[i : i + width] for i in range(0, len(raw), width)]
        assert isinstance(vector, BytesVector)
        data = vector.data.tobytes()
        return [data[a:b] for a, b in zip(vector.offsets, vector.offsets[1:], strict=False)]

    return cells


@pytest.fixture
def guarded():
    """Return a function that copies bytes to just before a page that must not be touched."""
    libc = ctypes.CDLL(None, use_errno=True)
    kept = []

    def place(data: np.ndarray) -> np.ndarray:
        page = mmap.PAGESIZE
        size = -(-max(data.nbytes, 1) // page) * page
        memory = mmap.mmap(-1, size + page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        assert libc.mprotect(ctypes.c_void_p(start + size), page, 0) == 0
        kept.append((memory, start + size, page))
        copy = np.frombuffer(memory, np.uint8, data.nbytes, size - data.nbytes)
        copy[:] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        return copy.view(data.dtype)

    yield place
    for _, address, page in kept:
        libc.mprotect(ctypes.c_void_p(address), page, mmap.PROT_READ)
