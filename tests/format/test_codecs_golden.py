"""The bytes of every codec, pinned: a change that moves one of them is a new format.

What LZ4 makes of a block may differ from one release of its library to the next; there, only that the pinned bytes
decode to the cells is promised.
"""

import numpy as np
import pytest

from nyala.engine.codecs.registry import codec_by_name
from nyala.engine.vectors.physical import INT128_DTYPE, PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector


def cells(physical: str, values: list) -> FixedVector:
    return FixedVector(np.array(values, PhysicalType(physical).dtype))


def strings(*texts: bytes) -> BytesVector:
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    return BytesVector(offsets, np.frombuffer(b"".join(texts), np.uint8))


TEXTS = strings(b"nyala", b"nylon", b"", b"nylon\0")

# Spaces stand between the fields.
STORED = {
    "plain bool": ("plain", "bool", cells("bool", [1, 0, 1, 1, 0, 0, 0, 0, 1]), "0d01"),
    "plain int16": ("plain", "int16", cells("int16", [1, -2]), "0100 feff"),
    "plain float64": ("plain", "float64", cells("float64", [-0.0, 1.5]), "0000000000000080 000000000000f83f"),
    "plain int128": (
        "plain",
        "int128",
        FixedVector(np.array([(1, -1)], INT128_DTYPE)),
        "0100000000000000ffffffffffffffff",
    ),
    # offsets, bytes
    "plain strings": (
        "plain",
        "bytes",
        TEXTS,
        "00000000 05000000 0a000000 0a000000 10000000 6e79616c61 6e796c6f6e 6e796c6f6e00",
    ),
    # end of the block, cells as they are: two cells do not shrink
    "bitshuffle, stored": ("bitshuffle", "int16", cells("int16", [258, -1]), "04000000 0201 ffff"),
    # runs, last rows, cells
    "run length bool": ("run_length", "bool", cells("bool", [0] * 300 + [1] * 5), "02000000 2b01 3001 00 01"),
    "run length int32": (
        "run_length",
        "int32",
        cells("int32", [7] * 3 + [-1] * 65_533),
        "02000000 0200 ffff 07000000 ffffffff",
    ),
    # no runs, the plain page
    "run length, stored": ("run_length", "int8", cells("int8", [1, 2, 3]), "00000000 010203"),
    # width, end of the block, codes as they are
    "dictionary, stored": ("dictionary", "bytes", cells("int32", [0, 1, 300]), "02 06000000 0000 0100 2c01"),
    # base, slope, end, width, form, exceptions; numbers of 5 bits; row and cell of the exception; zeros
    "frames": (
        "frame_of_reference",
        "int16",
        cells("int16", [-3, 20, 28, 0, 7, -2, 17, 11] * 2 + [30_000]),
        "fdffffffffffffff 0000000000000000 0f000000 05 00 0100e0fea10275e0fea1027513 1000 3075 0000000000000000",
    ),
    # a line of slope 1,000 x 65,536
    "frames, a line": (
        "frame_of_reference",
        "int64",
        cells("int64", [5, 1_005, 2_005, 3_005]),
        "0500000000000000 0000e80300000000 00000000 00 00 0000 0000000000000000",
    ),
    # base, slope, end, width, form 2, exceptions; quotients of 3 bits; zeros
    "frames, steps": (
        "frame_of_reference",
        "int32",
        cells("int32", [100, -300, 700, 500, 100, -100]),
        "d4feffffffffffff c800000000000000 03000000 03 02 0000 42a900 0000000000000000",
    ),
    # zeros, end, width, form 4, cells; numbers of 2 bits; the cells, of which the last one repeats; zeros
    "frames, few numbers": (
        "frame_of_reference",
        "int32",
        cells("int32", [70_000, -5, 1 << 30, 70_000, 70_000, -5] * 4),
        "0000000000000000 0000000000000000 16000000 02 04 0400"
        "244442244442 70110100 fbffffff 00000040 00000040 0000000000000000",
    ),
    # base, turn, end, width, form 3, exceptions; row and cell of the exception; zeros
    "noise": (
        "alp",
        "float64",
        cells("float64", [(1 / 3 + row / 7) * (-1) ** row for row in range(16)] + [1e-9 / 3]),
        "168661188661f87f 0100000000000000 7f000000 37 03 0100"
        "3fcff33ccff35c5655555555556500000000000010b76ddbb66ddb16b76ddbb66ddb320cc3300cc3308d6118866118867c9ee7799ee7391b8661188661187a9ee7799ee749f43ccff33ccf8355555555555591dbb66ddbb66d204992244992244c922449922409000000000000005be836275ace19"
        "1000 c7c833e00fe8f63d 0000000000000000",
    ),
    # base, exponent, factor, end, width, form, exceptions; numbers of 2 bits; rows and cells of exceptions; zeros
    "decimals": (
        "alp",
        "float64",
        cells("float64", [12.5, 12.8, -0.0] * 5 + [12.6]),
        "7d00000000000000 0e0d000000000000 36000000 02 01 0500 3ccff37c"
        "0200 0500 0800 0b00 0e00" + " 0000000000000080" * 5 + "0000000000000000",
    ),
    # symbols, their lengths, each in 8 bytes; end of the block, bytes, width; lengths of 4 bits, codes, zeros
    "fsst": (
        "fsst",
        "bytes",
        TEXTS,
        "02 0501 6e796c6f6e000000 6100000000000000"
        "13000000 10000000 04 1830 ff6e ff79 01 ff6c 01 00 00ff00 0000000000000000",
    ),
    # end of the block, width of lengths, shared, lengths, rests
    "prefix": ("prefix", "bytes", TEXTS, "17000000 01 00020000 05030006 6e79616c61 6c6f6e 6e796c6f6e00"),
}

COMPRESSED = {
    # end of the block, LZ4: five literals of plane 0 to 4, zeros; the ninth cell behind the planes
    "bitshuffle int32": (
        "bitshuffle",
        "int32",
        cells("int32", [1, 2, 3, 4, 5, 6, 7, 8, -9]),
        "0f000000 5f55667880000100075000f7ffffff",
    ),
    "bitshuffle int64": (
        "bitshuffle",
        "int64",
        cells("int64", list(range(64))),
        "28000000 13aa010013cc010013f001002300ff02002300ff0400400000ffff0c000f0200ffb7500000000000",
    ),
    # width, end of the block, LZ4
    "dictionary": ("dictionary", "bytes", cells("int32", [0, 1] * 32), "01 0f000000 13aa01001f0001001f500000000000"),
}


def raw(vector: object) -> bytes:
    if isinstance(vector, BytesVector):
        return vector.offsets.tobytes() + vector.data.tobytes()
    assert isinstance(vector, FixedVector)
    return vector.values.tobytes()


@pytest.mark.parametrize("case", STORED)
def test_written_bytes(case):
    name, physical, vector, pinned = STORED[case]
    assert codec_by_name(name).encode(vector, PhysicalType(physical)).tobytes().hex() == pinned.replace(" ", "")


@pytest.mark.parametrize("case", STORED | COMPRESSED)
def test_pinned_bytes_are_read(case):
    name, physical, vector, pinned = (STORED | COMPRESSED)[case]
    codec, rows = codec_by_name(name), len(vector)
    payload = np.frombuffer(bytes.fromhex(pinned), np.uint8)
    codec.check(payload, PhysicalType(physical), rows)
    decoded = codec.decode(payload, PhysicalType(physical), rows, 0, rows)
    assert raw(decoded) == raw(vector)
