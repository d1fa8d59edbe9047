"""Vectors of every type, and files in memory to put them in."""

from collections.abc import Callable

import numpy as np
import pytest

from nyala.engine.cfile.format import StreamKey
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.cfile.writer import CFileWriter
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector, as_bytes

FILE_ID = 77
KEY = StreamKey(3, "base")


def strings(cells, valid=None):
    """A BytesVector of a list of bytes; what stands under a NULL is made empty."""
    if valid is not None:
        cells = [cell if is_valid else b"" for cell, is_valid in zip(cells, valid, strict=True)]
    offsets = np.cumsum([0, *map(len, cells)]).astype(np.int32)
    return BytesVector(offsets, np.frombuffer(b"".join(cells), np.uint8), valid)


def vector_of(physical, row_count, valid=None, seed=1, distinct=500):
    """Random cells; strings repeat among ``distinct`` values."""
    random = np.random.default_rng(seed)
    if physical is PhysicalType.BYTES:
        words = [b"word-%d" % number * (number % 3) for number in range(distinct)]
        cells = [words[code] for code in random.integers(0, distinct, row_count)]
        return strings(cells, valid)
    if physical is PhysicalType.BOOL:
        values = random.integers(0, 2, row_count).astype(np.uint8)
    elif physical in (PhysicalType.FLOAT32, PhysicalType.FLOAT64):
        values = random.normal(size=row_count).astype(physical.dtype)
    elif physical is PhysicalType.INT128:
        values = np.zeros(row_count, physical.dtype)
        values["lo"] = random.integers(0, 2**63, row_count)
        values["hi"] = random.integers(-5, 5, row_count)
    else:
        values = np.sort(random.integers(-100, 100, row_count)).astype(physical.dtype)
    if valid is not None:
        values[~valid] = np.zeros(1, physical.dtype)[0]
    return FixedVector(values, valid)


def cells_of(vector):
    """All there is to a vector, as plain bytes: what two equal vectors have in common."""
    valid = np.ones(len(vector), bool) if vector.valid is None else vector.valid
    if isinstance(vector, FixedVector):
        return vector.values.dtype, vector.values.tobytes(), valid.tobytes()
    vector = as_bytes(vector)
    first, last = int(vector.offsets[0]), int(vector.offsets[-1])
    return (vector.offsets - first).tobytes(), vector.data[first:last].tobytes(), valid.tobytes()


def write(fs, streams, path="file", file_id=FILE_ID, kind="base", metadata=None):
    """Write {key: (physical, vectors, encoding, ...)} and return the CFileInfo; the rest goes to ``write_stream``."""
    with CFileWriter(fs, path, file_id, kind) as writer:
        for key, (physical, vectors, encoding, *how) in streams.items():
            writer.write_stream(key, physical, vectors, encoding, *how)
        return writer.finish(metadata or {})


@pytest.fixture
def fs():
    return MemoryFileSystem()


@pytest.fixture
def stored(fs) -> Callable:
    """Write one stream and return its reader; the file has been verified."""

    def store(physical, vectors, encoding="plain", compression="none", page_rows=65_536):
        path = f"file-{len(fs.list(''))}"
        write(fs, {KEY: (physical, vectors, encoding, compression, True, page_rows)}, path)
        reader = CFileReader.open(fs, path, FILE_ID)
        reader.verify()
        return reader.stream(KEY)

    return store


class Toolbox:
    """The helpers above, for tests that cannot import a conftest."""

    FILE_ID = FILE_ID
    KEY = KEY
    strings = staticmethod(strings)
    vector_of = staticmethod(vector_of)
    cells_of = staticmethod(cells_of)
    write = staticmethod(write)


@pytest.fixture(scope="session")
def make():
    return Toolbox
