"""Numbers and names of the codecs; the types that the schemas promise."""

import pytest

from nyala.engine.codecs.registry import codec_by_code, codec_by_name
from nyala.engine.vectors.physical import physical_of
from nyala.schemas.cells.encoding import AUTO, encodings_for
from nyala.schemas.cells.types import LogicalType

TYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "date",
    "timestamp[us]",
    "float",
    "double",
    "decimal(9,2)",
    "decimal(18,2)",
    "decimal(38,2)",
    "string",
    "varchar(10)",
    "binary",
    "uint8",
    "uint32",
    "uint64",
    "float16",
    "time32[s]",
    "duration[ns]",
    "month_day_nano_interval",
    "list<int64>",
]


def test_numbers_on_disk_never_change():
    names = {code: codec_by_code(code).name for code in range(1, 10)}
    assert names == {
        1: "plain",
        2: "bitshuffle",
        3: "run_length",
        4: "dictionary",
        5: "prefix",
        6: "frame_of_reference",
        7: "alp",
        8: "fsst",
        9: "shredded",
    }
    for code in (0, 10, 255):
        with pytest.raises(KeyError):
            codec_by_code(code)


def test_names_and_aliases():
    assert codec_by_name("rle") is codec_by_name("run_length")
    assert codec_by_name("DICT") is codec_by_name("dictionary")
    assert codec_by_name("for") is codec_by_name("frame_of_reference")
    with pytest.raises(KeyError):
        codec_by_name("zigzag")


@pytest.mark.parametrize("word", TYPES)
def test_every_encoding_of_a_type_can_store_it(word):
    kind = LogicalType.parse(word)
    physical = physical_of(kind.arrow)
    names = encodings_for(kind)
    assert AUTO in names
    for name in names:
        assert name == AUTO or codec_by_name(name).supports(physical)
