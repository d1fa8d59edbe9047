"""The words of the types, their Arrow types, and what is refused with what advice."""

import pyarrow as pa
import pytest

from nyala.schemas.cells.encoding import encodings_for
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.errors import InvalidArgumentError

WORDS = [
    "bool", "int8", "int16", "int32", "int64", "date", "timestamp[us]", "float", "double",
    "decimal(9,2)", "decimal(38,38)", "string", "varchar(1)", "varchar(65535)", "binary",
    "uint8", "uint16", "uint32", "uint64", "float16", "time32[s]", "time32[ms]", "time64[us]", "time64[ns]",
    "duration[s]", "duration[ms]", "duration[us]", "duration[ns]", "month_day_nano_interval",
    "list<int64>", "large_list<string>", "fixed_size_list<float>[3]", "map<string, list<int8>>",
    'struct<a: int64, "b c": list<struct<"quo""te": decimal(9,2)>>, "x:y,z>": date>',
]  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_a_word_comes_back_from_its_type_and_from_its_arrow_field(word):
    kind = LogicalType.parse(word)
    assert str(kind) == word
    assert LogicalType.from_arrow(kind.field("column", True)) == kind


@pytest.mark.parametrize(
    "word",
    [
        "uint128",
        "list<>",
        "list<varchar(3)>",
        "struct<>",
        "struct<a>",
        "map<int8>",
        "list<int8",
        "int8[0]",
        "struct<a: int8, a: int8>",
        "fixed_size_list<int8>",
        "[]",
        "list<" * 40 + "int8" + ">" * 40,
        "decimal(39,0)",
        "decimal(5,6)",
        "decimal(0,0)",
        "varchar(0)",
        "varchar(65536)",
        "",
    ],
)
def test_other_words_are_refused(word):
    with pytest.raises(InvalidArgumentError):
        LogicalType.parse(word)


@pytest.mark.parametrize(
    ("arrow", "advice"),
    [
        (pa.timestamp("ns"), "timestamp[us]"),
        (pa.timestamp("us", "UTC"), "timestamp[us]"),
        (pa.date64(), "date"),
        (pa.large_string(), "string"),
        (pa.binary(4), "binary"),
        (pa.list_(pa.null()), "string (as JSON)"),
        (pa.struct([]), "string (as JSON)"),
        (pa.list_(pa.large_string()), "list<string>"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.decimal256(40, 2), "decimal"),
        (pa.null(), "string"),
    ],
)
def test_a_type_that_cannot_be_held_is_refused_by_name_with_the_nearest(arrow, advice):
    with pytest.raises(InvalidArgumentError) as refused:
        LogicalType.from_arrow(pa.field("price", arrow))
    assert "'price'" in refused.value.message
    assert str(arrow) in refused.value.message
    assert advice in refused.value.message.partition("nearest type that works is")[2]


@pytest.mark.parametrize("word", WORDS)
def test_the_first_encoding_is_the_documented_default(word):
    kind = LogicalType.parse(word)
    wide = (kind.name == "decimal" and kind.precision > 18) or word in ("uint64", "month_day_nano_interval")
    default = "run_length" if word == "bool" else "bitshuffle" if wide else "auto"
    assert encodings_for(kind)[0] == default
    assert "plain" in encodings_for(kind)


def test_only_whole_and_text_types_may_be_keys():
    keys = ("int8", "int16", "int32", "int64", "date", "timestamp[us]", "decimal", "string", "varchar", "binary")
    assert [word for word in WORDS if LogicalType.parse(word).may_be_key] == [
        word for word in WORDS if LogicalType.parse(word).name in keys
    ]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("array<text>", "list<string>"),
        ("INT[]", "list<int32>"),
        ("double precision[3][]", "list<fixed_size_list<double>[3]>"),
        ("list<item: int64>", "list<int64>"),
        ("Struct<a bigint, b: Time>", "struct<a: int64, b: time64[us]>"),
        ("timestamp[us][]", "list<timestamp[us]>"),
        ("ubigint", "uint64"),
    ],
)
def test_other_ways_to_write_a_type(text, word):
    assert str(LogicalType.parse(text)) == word
