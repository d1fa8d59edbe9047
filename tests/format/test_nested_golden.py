"""The bytes of nested cells, worked out by hand: docs/format/nested.md draws the first of them."""

import pyarrow as pa
import pytest

from nyala.engine.cfile.format import StreamKey
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.cfile.writer import CFileWriter
from nyala.engine.cfile.zone_map import ZoneMap
from nyala.engine.codecs.registry import codec_by_code
from nyala.engine.codecs.shredded import ShreddedCodec
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.vectors.arrow import from_arrow, to_arrow
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector
from nyala.schemas.cells.types import LogicalType

POINT = pa.struct([("x", pa.int16()), ("name", pa.string()), ("on", pa.bool_())])

# Spaces stand between: count, bitmap, lengths, items.
CELLS = {
    "a list of numbers": (pa.list_(pa.int32()), [7, -1], "02000000 07000000 ffffffff"),
    "with a NULL": (pa.list_(pa.int32()), [7, None], "02000080 01 07000000 00000000"),
    "an empty list": (pa.list_(pa.int32()), [], "00000000"),
    "nine items, one NULL": (pa.list_(pa.int8()), [1] * 8 + [None], "09000080 ff00 010101010101010100"),
    "a list of texts": (pa.list_(pa.string()), ["ny", "", None], "03000080 03 02000000 00000000 00000000 6e79"),
    "a large list": (pa.large_list(pa.bool_()), [True, False], "02000000 01 00"),
    "lists of one length": (pa.list_(pa.float64(), 1), [1.5], "01000000 000000000000f83f"),
    "lists of lists": (pa.list_(pa.list_(pa.int8())), [[5], []], "02000000 05000000 04000000 01000000 05 00000000"),
    "a struct": (POINT, {"x": 258, "name": "ny", "on": True}, "07 0201 02000000 01 6e79"),
    "a struct with NULLs": (POINT, {"x": None, "name": None, "on": False}, "04 0000 00000000 00"),
    "a map": (
        pa.map_(pa.string(), pa.int16()),
        [("k", 1), ("l", None)],
        "02000000 08000000 08000000 03 01000000 0100 6b 01 01000000 0000 6c",
    ),
    "a decimal": (pa.list_(pa.decimal128(9, 2)), [1], "01000000 64" + "00" * 15),
    "an interval": (
        pa.list_(pa.month_day_nano_interval()),
        [pa.MonthDayNano([1, 2, 3])],
        "01000000 01000000 02000000 0300000000000000",
    ),
}


# Type, ends; lengths of the lists; validity, lengths and bytes of the strings.
SHREDDED = (
    "0c00 6c6973743c737472696e673e 00000000 10000000 11000000 21000000 27000000"
    "0c000000 08000000 02000000 00000000"
    "01 0c000000 08000000 02000000 00000000 02000000 6e79"
)


def test_golden_page_of_shredded_cells():
    vector = from_arrow(pa.array([["ny", None], []]), PhysicalType.BYTES)
    assert isinstance(vector, BytesVector)
    payload = ShreddedCodec("list<string>").encode(vector, PhysicalType.BYTES)
    assert payload.tobytes() == bytes.fromhex(SHREDDED)
    codec = codec_by_code(9)
    codec.check(payload, PhysicalType.BYTES, 2)
    cells = codec.decode(payload, PhysicalType.BYTES, 2, 0, 2)
    assert to_arrow(cells, pa.list_(pa.string())).to_pylist() == [["ny", None], []]


# The zone map of the cells is of their bytes; those of the leaves are of values, and of a text there is none.
LEAVES = (
    '{"file_id":7,"kind":"base","streams":[{"column_id":3,"role":"base","physical":"bytes","row_count":3,'
    '"page_rows":65536,"raw_bytes":18,"encodings":["shredded"],"pages":[{"offset":24,"length":144,"row_count":3,'
    '"null_count":1,"zone":{"min":"Bf//AAAAAAA=","max":"BwIBAgAAAAFueQ==","exact":true},'
    '"leaves":[{"null_count":1,"min":-1,"max":258},null,{"null_count":1,"min":0,"max":1}]}],'
    '"nested":"struct<x: int16, name: string, on: bool>"}],"metadata":{}}'
)


def test_golden_footer_of_structs():
    fs = MemoryFileSystem()
    rows = [{"x": 258, "name": "ny", "on": True}, None, {"x": -1, "name": None, "on": False}]
    with CFileWriter(fs, "file", 7, "base") as writer:
        cells = from_arrow(pa.array(rows, POINT), PhysicalType.BYTES)
        kind = str(LogicalType.of(POINT))
        writer.write_stream(StreamKey(3, "base"), PhysicalType.BYTES, [cells], "shredded", nested=kind)
        writer.finish({})
    reader = CFileReader.open(fs, "file", 7)
    reader.verify()
    written = bytes(fs.open("file").view())
    assert written[reader.image.footer_offset : -28].decode() == LEAVES
    zones = [reader.stream(StreamKey(3, "base")).leaf_zone_maps(kind, (number,)) for number in range(3)]
    assert zones == [[ZoneMap(-1, 258, 1, 3, True)], [], [ZoneMap(0, 1, 1, 3, True)]]


@pytest.mark.parametrize("case", CELLS)
def test_golden_cells(case):
    kind, value, expected = CELLS[case]
    vector = from_arrow(pa.array([value], kind), PhysicalType.BYTES)
    assert isinstance(vector, BytesVector)
    assert vector.data[: vector.offsets[-1]].tobytes() == bytes.fromhex(expected)
    assert to_arrow(vector, kind).to_pylist() == [value]
