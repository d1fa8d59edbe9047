"""Encodings by whole pages, through the codecs' own interface, beside pyarrow."""

import io
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.micro.case import NYALA, Case
from nyala.engine.codecs.dictionary import DictionaryBuilder
from nyala.engine.codecs.prefix import PrefixCodec
from nyala.engine.codecs.registry import codec_by_name
from nyala.engine.codecs.run_length import RunLengthCodec
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.physical import PhysicalType, physical_of
from nyala.engine.vectors.vector import BytesVector, FixedVector

PAGE = 65_536
DICTIONARY_ROWS = 16 * PAGE


def run_length_cases() -> Iterator[Case]:
    """int64 with runs of random lengths around 2, 10, 100 and 1,000."""
    codec, physical = RunLengthCodec(), PhysicalType.INT64
    for run in (2, 10, 100, 1_000):
        random = np.random.default_rng(run)
        count = 2 * PAGE // run + 10
        values = np.repeat(random.integers(0, 1_000, count), random.geometric(1 / run, count))[:PAGE]
        vector, array = FixedVector(values), pa.array(values)
        payload, encoded = codec.encode(vector, physical), pc.run_end_encode(array)
        restored = codec.decode(payload, physical, PAGE, 0, PAGE)
        assert isinstance(restored, FixedVector) and (restored.values == values).all()
        yield Case(
            f"run length int64, runs of {run:,}, encode",
            "GB",
            values.nbytes / 1e9,
            {
                NYALA: lambda vector=vector: codec.encode(vector, physical),
                "pyarrow": lambda array=array: pc.run_end_encode(array),
            },
        )
        yield Case(
            f"run length int64, runs of {run:,}, decode",
            "GB",
            values.nbytes / 1e9,
            {
                NYALA: lambda payload=payload: codec.decode(payload, physical, PAGE, 0, PAGE),
                "pyarrow": lambda encoded=encoded: pc.run_end_decode(encoded),
            },
        )


def dictionary_cases() -> Iterator[Case]:
    """Rows given codes, with 8, 200 and 50,000 distinct values of 2 to 17 bytes."""
    random = np.random.default_rng(1)
    for cardinality, shortest, longest in ((8, 2, 6), (200, 3, 12), (50_000, 6, 16)):
        lengths = random.integers(shortest, longest + 1, cardinality)
        words = [bytes(random.integers(97, 123, n, dtype=np.uint8)) + b"%d" % i for i, n in enumerate(lengths)]
        rows = pa.array(words, pa.binary()).take(pa.array(random.integers(0, cardinality, DICTIONARY_ROWS)))
        vector = _bytes(rows)
        pages = [vector.slice(first, first + PAGE) for first in range(0, DICTIONARY_ROWS, PAGE)]
        assert _dictionary(pages).dictionary().data.tobytes() == b"".join(
            rows.dictionary_encode().dictionary.to_pylist()
        )
        yield Case(
            f"dictionary build, {cardinality:,} values",
            "Mrows",
            DICTIONARY_ROWS / 1e6,
            {
                NYALA: lambda pages=pages: _dictionary(pages),
                "pyarrow": lambda rows=rows: rows.dictionary_encode(),
            },
        )


def _dictionary(pages: list[BytesVector]) -> DictionaryBuilder:
    builder = DictionaryBuilder()
    for page in pages:
        assert builder.add(page) is not None
    return builder


def _bytes(array: pa.Array) -> BytesVector:
    vector = from_arrow(array, PhysicalType.BYTES)
    assert isinstance(vector, BytesVector)
    return vector


def prefix_cases() -> Iterator[Case]:
    """Sorted strings; the peer is Parquet's DELTA_BYTE_ARRAY, written and read in memory."""
    random = np.random.default_rng(1)
    numbers = random.integers(0, 10**9, PAGE)
    contents = {
        "URLs": [f"https://www.site{n % 997:04d}.example.com/path/{n % 10**6:06d}/item{n}" for n in numbers],
        "user ids": [f"user{n:010d}" for n in numbers],
        "UUIDs": [random.bytes(16).hex() for _ in numbers],
    }
    codec, physical = PrefixCodec(), PhysicalType.BYTES
    for content, texts in contents.items():
        array = pa.array(sorted(texts), pa.string())
        vector, table = _bytes(array), pa.table({"x": array})
        payload, parquet = codec.encode(vector, physical), _parquet(table)
        restored = codec.decode(payload, physical, PAGE, 0, PAGE)
        assert restored.data[: restored.data_bytes].tobytes() == vector.data[: vector.data_bytes].tobytes()
        yield Case(
            f"prefix, sorted {content}, encode",
            "GB",
            vector.data_bytes / 1e9,
            {
                NYALA: lambda vector=vector: codec.encode(vector, physical),
                "pyarrow": lambda table=table: _parquet(table),
            },
        )
        yield Case(
            f"prefix, sorted {content}, decode",
            "GB",
            vector.data_bytes / 1e9,
            {
                NYALA: lambda payload=payload: codec.decode(payload, physical, PAGE, 0, PAGE),
                "pyarrow": lambda parquet=parquet: pq.read_table(pa.BufferReader(parquet), use_threads=False),
            },
        )


def _parquet(table: pa.Table) -> bytes:
    target = io.BytesIO()
    pq.write_table(table, target, compression="none", use_dictionary=False, column_encoding={"x": "DELTA_BYTE_ARRAY"})
    return target.getvalue()


def page_cases() -> Iterator[Case]:
    """Pages in the encodings that ``auto`` chooses from, beside Parquet with zstd; the share of the cells' bytes that
    each takes stands in the name."""
    random = np.random.default_rng(1)
    stamps = 10**15 + np.arange(PAGE) * 1_000 + random.integers(0, 1_000, PAGE)
    contents = {
        "timestamps": (("frame_of_reference", "bitshuffle"), pa.array(stamps)),
        "quantities": (("frame_of_reference", "bitshuffle"), pa.array(random.integers(0, 10_000, PAGE, np.int32))),
        "prices": (("alp", "bitshuffle"), pa.array(np.round(random.gamma(2, 50, PAGE), 2))),
        "references": (("fsst", "plain"), pa.array([f"user{n:010d}-{n % 9973:04d}" for n in stamps * 7919 % 10**10])),
    }
    for content, (names, array) in contents.items():
        physical = physical_of(array.type)
        vector, table = from_arrow(array, physical), pa.table({"x": array})
        size = vector.data_bytes if isinstance(vector, BytesVector) else array.nbytes
        parquet = _zstd(table)
        for name in names:
            codec = codec_by_name(name)
            payload = codec.encode(vector, physical)
            shares = f"{len(payload) / size:.2f} beside {len(parquet) / size:.2f}"
            encoders = {
                NYALA: lambda codec=codec, vector=vector, physical=physical: codec.encode(vector, physical),
                "pyarrow": lambda table=table: _zstd(table),
            }
            decoders = {
                NYALA: lambda codec=codec, payload=payload, physical=physical: codec.decode(
                    payload, physical, PAGE, 0, PAGE
                ),
                "pyarrow": lambda parquet=parquet: pq.read_table(pa.BufferReader(parquet), use_threads=False),
            }
            yield Case(f"{content}, {name} ({shares}), encode", "GB", size / 1e9, encoders)
            yield Case(f"{content}, {name} ({shares}), decode", "GB", size / 1e9, decoders)


def _zstd(table: pa.Table) -> bytes:
    target = io.BytesIO()
    pq.write_table(table, target, compression="zstd")
    return target.getvalue()
