"""The words of the types, their Arrow types, and what is refused with what advice."""

import pyarrow as pa
import pytest

from nyala.schemas.cells.encoding import encodings_for
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.errors import InvalidArgumentError

WORDS = [
    "bool", "int8", "int16", "int32", "int64", "date", "timestamp[us]", "float", "double",
    "decimal(9,2)", "decimal(38,38)", "string", "varchar(1)", "varchar(65535)", "binary",
]  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_a_word_comes_back_from_its_type_and_from_its_arrow_field(word):
    kind = LogicalType.parse(word)
    assert str(kind) == word
    assert LogicalType.from_arrow(kind.field("column", True)) == kind


@pytest.mark.parametrize(
    "word", ["uint8", "decimal(39,0)", "decimal(5,6)", "decimal(0,0)", "varchar(0)", "varchar(65536)", ""]
)
def test_other_words_are_refused(word):
    with pytest.raises(InvalidArgumentError):
        LogicalType.parse(word)


@pytest.mark.parametrize(
    ("arrow", "advice"),
    [
        (pa.uint8(), "int16"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.timestamp("ns"), "timestamp[us]"),
        (pa.timestamp("us", "UTC"), "timestamp[us]"),
        (pa.date64(), "date"),
        (pa.time64("us"), "int64"),
        (pa.float16(), "float"),
        (pa.large_string(), "string"),
        (pa.binary(4), "binary"),
        (pa.list_(pa.int8()), "string (as JSON)"),
        (pa.struct([("a", pa.int8())]), "string (as JSON)"),
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
    wide = kind.name == "decimal" and kind.precision > 18
    default = "run_length" if word == "bool" else "bitshuffle" if wide else "auto"
    assert encodings_for(kind)[0] == default
    assert "plain" in encodings_for(kind)


def test_only_whole_and_text_types_may_be_keys():
    assert [word for word in WORDS if not LogicalType.parse(word).may_be_key] == ["bool", "float", "double"]
