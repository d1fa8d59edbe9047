"""Zone maps of the leaves of struct columns: right for every type, kept by copies, and found by verify if they lie."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.cfile.footer import LeafEntry, PageEntry, pack_footer
from nyala.engine.cfile.format import StreamKey
from nyala.engine.cfile.leaf_zones import leaf_zone_maps, leaves_of
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.cfile.stream import StreamReader
from nyala.engine.cfile.writer import CFileWriter
from nyala.engine.cfile.zone_map import ZoneMap
from nyala.engine.codecs.codec import PAGE_ROWS
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.physical import PhysicalType
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.errors import CorruptionError
from tests.dose import dose
from tests.engine.vectors.nested_values import nested_types, values

KEY = StreamKey(3, "base")
POINT = pa.struct([("x", pa.int32()), ("name", pa.string()), ("geo", pa.struct([("lat", pa.float64())]))])
KIND = "struct<x: int32, name: string, geo: struct<lat: double>>"


def written(array: pa.Array, kind: str, encoding: str = "shredded", others: tuple[StreamReader, ...] = ()) -> bytes:
    fs = MemoryFileSystem()
    with CFileWriter(fs, "file", 7, "base") as writer:
        stream = writer.open_stream(KEY, PhysicalType.BYTES, encoding, nested=kind)
        for other in others:
            for first in range(0, other.row_count // PAGE_ROWS * PAGE_ROWS, PAGE_ROWS):
                assert stream.copy_rows(other, first)
        stream.append(from_arrow(array, PhysicalType.BYTES))
        stream.finish()
        writer.finish({})
    return bytes(fs.open("file").view())


def opened(image: bytes) -> CFileReader:
    fs = MemoryFileSystem()
    fs.create("file").append(image)
    return CFileReader.open(fs, "file", 7)


def stream_of(array: pa.Array, kind: str = KIND, encoding: str = "shredded") -> StreamReader:
    reader = opened(written(array, kind, encoding))
    reader.verify()
    return reader.stream(KEY)


def test_bounds_of_leaves() -> None:
    rows = [
        {"x": 3, "name": "a", "geo": {"lat": 0.0}},
        None,
        {"x": -1, "name": None, "geo": None},
        {"x": None, "name": "b", "geo": {"lat": math.nan}},
    ]
    stream = stream_of(pa.array(rows, POINT))
    assert stream.leaf_zone_maps(KIND, (0,)) == [ZoneMap(-1, 3, 2, 4, True)]
    assert stream.leaf_zone_maps(KIND, (1,)) == [], "text has none"
    (lat,) = stream.leaf_zone_maps(KIND, (2, 0))
    assert lat is not None and lat == ZoneMap(-0.0, 0.0, 2, 4, True, has_nan=True) and math.copysign(1, lat.min) == -1
    assert stream.leaf_zone_maps(KIND.replace("x", "y"), (0,)) == [], "of another type nothing is known"


@pytest.mark.parametrize("encoding", ["shredded", "dictionary", "auto"])
def test_pages_of_each_encoding_have_the_same_bounds(encoding: str) -> None:
    numbers = np.random.default_rng(1).integers(-(10**6), 10**6, 3 * PAGE_ROWS)
    numbers[:PAGE_ROWS] //= 10**4  # so that the first page is taken by a dictionary
    kind = pa.struct([("x", pa.int64()), ("y", pa.float64()), ("in", pa.struct([("z", pa.int32())]))])
    array = pa.array(
        [None if n % 7 == 0 else {"x": n, "y": None if n % 5 == 0 else n / 8, "in": {"z": n} if n % 3 else None}
         for n in numbers.tolist()], kind)  # fmt: skip
    text = str(LogicalType.of(kind))
    stream = stream_of(array, text, encoding)
    if encoding == "auto":
        assert stream.encoding_names == ["dictionary", "shredded"]
    for path in ((0,), (1,), (2, 0)):
        parts = [leaf_zone_maps(array.slice(first, PAGE_ROWS)) for first in range(0, len(array), PAGE_ROWS)]
        expected = [part[[(0,), (1,), (2, 0)].index(path)] for part in parts]
        zones = stream.leaf_zone_maps(text, path)
        encodings = [stream.page(number).codec.name for number in range(3)]
        assert zones == [None if name == "plain" else zone for name, zone in zip(encodings, expected, strict=True)]
        assert zones[0] is not None


@pytest.mark.parametrize("encoding", ["shredded", "dictionary", "auto"])
def test_a_page_of_nulls_has_leaves_of_nulls(encoding: str) -> None:
    stream = stream_of(pa.array([None, None], POINT), KIND, encoding)
    assert stream.entry.nested is None and stream.leaf_zone_maps(KIND, (0,)) == []
    rows = [{"x": number, "name": "", "geo": None} for number in range(PAGE_ROWS)]
    stream = stream_of(pa.array([*rows, None, None], POINT))
    assert stream.leaf_zone_maps(KIND, (0,)) == [
        ZoneMap(0, PAGE_ROWS - 1, 0, PAGE_ROWS, True),
        ZoneMap(None, None, 2, 2, True),
    ]


@pytest.mark.parametrize("kind", [pa.list_(POINT), pa.map_(pa.int32(), pa.int32()), pa.struct([("s", pa.string())])])
def test_columns_without_leaves_with_bounds(kind: pa.DataType) -> None:
    stream = stream_of(
        pa.array([[], None] if not pa.types.is_struct(kind) else [{"s": "x"}], kind), str(LogicalType.of(kind))
    )
    assert stream.entry.nested is None and not stream.entry.pages[0].leaves


@settings(max_examples=dose(150, 3_000), deadline=None)
@given(st.data())
def test_bounds_of_leaves_of_any_type_are_those_of_their_values(data: st.DataObject) -> None:
    kind = data.draw(nested_types().filter(pa.types.is_struct))
    rows = data.draw(st.lists(values(kind), min_size=1, max_size=6))
    array = pa.array(rows, kind)
    stream = stream_of(array, str(LogicalType.of(kind)))
    zones = leaf_zone_maps(array)
    for number, leaf in enumerate(leaves_of(kind)):
        if not leaf.has_bounds:
            continue
        of_leaf = array
        for place in leaf.path:
            of_leaf = pa.array(values_of(of_leaf, place), of_leaf.type.field(place).type)
        zone = zones[number]
        assert zone is not None and (zone.null_count, zone.row_count) == (of_leaf.null_count, len(rows))
        cells = from_arrow(of_leaf.drop_null(), leaf.physical)
        numbers = [number_of(cell) for cell in cells.values.tolist()]  # pyright: ignore[reportAttributeAccessIssue]
        if numbers:
            assert (zone.min, zone.max) == (min(numbers), max(numbers))
        if array.null_count < len(array):
            assert stream.leaf_zone_maps(str(LogicalType.of(kind)), leaf.path) == [zone]


def values_of(array: pa.Array, place: int) -> list[Any]:
    name = array.type.field(place).name
    return [None if row is None else row[name] for row in array.to_pylist()]


def number_of(cell: Any) -> Any:
    return (cell[1] << 64) + cell[0] if isinstance(cell, tuple) else cell


def many(first: int) -> pa.Array:
    """Two pages and a little more, of rising numbers."""
    numbers = np.arange(first, first + 2 * PAGE_ROWS + 9, dtype=np.int32)
    return pa.StructArray.from_arrays([pa.array(numbers), pa.array(np.zeros(len(numbers)))], names=["x", "y"])


def test_copied_pages_keep_the_bounds_of_their_leaves() -> None:
    kind = "struct<x: int32, y: double>"
    source = stream_of(many(0), kind)
    reader = opened(written(many(10_000_000), kind, others=(source,)))
    reader.verify()
    zones = reader.stream(KEY).leaf_zone_maps(kind, (0,))
    assert [zone and zone.min for zone in zones] == [0, PAGE_ROWS, 10_000_000, 10_000_000 + PAGE_ROWS, 10_131_072]


def test_pages_of_files_without_bounds_of_leaves_have_none_beside_others() -> None:
    kind = "struct<x: int32, y: double>"
    older = opened(changed(written(many(0), kind), nested=None, leaves=[(), (), ()])).stream(KEY)
    assert older.leaf_zone_maps(kind, (0,)) == []
    reader = opened(written(many(10_000_000), kind, others=(older,)))
    reader.verify()
    zones = reader.stream(KEY).leaf_zone_maps(kind, (0,))
    assert [zone and zone.min for zone in zones] == [None, None, 10_000_000, 10_000_000 + PAGE_ROWS, 10_131_072]


def changed(image: bytes, nested: str | None, leaves: list[tuple[LeafEntry | None, ...]]) -> bytes:
    """The file with other bounds of leaves, and sound checksums."""
    reader = opened(image)
    (stream,) = reader.footer.streams
    pages: list[PageEntry] = [
        page.model_copy(update={"leaves": of_page}) for page, of_page in zip(stream.pages, leaves, strict=True)
    ]
    stream = stream.model_copy(update={"nested": nested, "pages": pages})
    footer = reader.footer.model_copy(update={"streams": [stream]})
    offset = reader.image.footer_offset
    return image[:offset] + pack_footer(footer, offset)


X = LeafEntry(null_count=1, min=1, max=2)
LAT = LeafEntry(null_count=1, min="0x1.0000000000000p-1", max="0x1.8000000000000p+0")
LIES: dict[str, tuple[str | None, tuple[LeafEntry | None, ...], str]] = {
    "a greater least": (KIND, (LeafEntry(null_count=1, min=2, max=2), None, LAT), "field 0 of its cells"),
    "a smaller most": (KIND, (LeafEntry(null_count=1, min=1, max=1), None, LAT), "field 0 of its cells"),
    "bounds too wide": (KIND, (LeafEntry(null_count=1, min=0, max=2), None, LAT), "field 0 of its cells"),
    "no NULL": (KIND, (LeafEntry(null_count=0, min=1, max=2), None, LAT), "field 0 of its cells"),
    "NULLs only": (KIND, (X, None, LeafEntry(null_count=3)), "field 2.0 of its cells"),
    "a NaN": (KIND, (X, None, LAT.model_copy(update={"has_nan": True})), "field 2.0 of its cells"),
    "not exact": (KIND, (LeafEntry(null_count=1, min=1, max=2, exact=False), None, LAT), "field 0 of its cells"),
    "more NULLs than rows": (KIND, (LeafEntry(null_count=4, min=1, max=2), None, LAT), "4 NULLs in 3 rows"),
    "another kind of number": (KIND, (X, None, X), "1 is not a bound of float64 cells"),
    "beyond the type": (KIND, (LeafEntry(null_count=1, min=1, max=1 << 31), None, LAT), "not bounds of int32 cells"),
    "too few leaves": (KIND, (X, None), "bounds of {2} fields, not of 3"),
    "no type": (None, (X, None, LAT), "fields have bounds but no type"),
    "an unknown type": ("struct<x: what>", (X, None, LAT), "nested type cannot be read"),
    "another type": (KIND.replace("int32", "int64"), (X, None, LAT), "the footer says struct<x: int64"),
    "a list": ("list<int32>", (X, None, LAT), "bounds of {3} fields, not of 0"),
}


@pytest.mark.parametrize("case", LIES)
def test_bounds_of_leaves_that_lie_are_found_by_verify(case: str) -> None:
    rows = [{"x": 1, "name": "a", "geo": {"lat": 0.5}}, {"x": 2, "name": "b", "geo": {"lat": 1.5}}, None]
    image = written(pa.array(rows, POINT), KIND)
    assert opened(image).footer.streams[0].pages[0].leaves == (X, None, LAT)
    nested, leaves, why = LIES[case]
    with pytest.raises(CorruptionError) as error:
        opened(changed(image, nested, [leaves])).verify()
    assert why in str(error.value)


def test_the_footer_of_an_older_version_is_that_without_these_members() -> None:
    image = written(pa.array([{"x": 1, "name": "a", "geo": None}], POINT), KIND)
    footer = json.loads(image[opened(image).image.footer_offset : -28])
    assert footer["streams"][0].pop("nested") == KIND
    assert footer["streams"][0]["pages"][0].pop("leaves") == [{"min": 1, "max": 1}, None, {"null_count": 1}]
    assert not footer.get("required_features"), "older versions read the file"
