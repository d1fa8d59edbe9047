"""Definitions of tables: ids, defaults, and every rule that a definition may break."""

import pyarrow as pa
import pytest

from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.table.column import ColumnDefinition, ColumnOptions
from nyala.schemas.table.table import TableDefinition, TableSchema


def definition(*columns: ColumnDefinition, key: list[str] | None = None, name: str = "t") -> TableDefinition:
    return TableDefinition(name=name, columns=list(columns), primary_key=["id"] if key is None else key)


ID = ColumnDefinition(name="id", type="int64", nullable=False)


def test_ids_follow_the_columns_and_survive_json():
    schema = TableSchema.create(definition(ID, ColumnDefinition(name="note", type="string")), Limits())
    assert [(column.id, column.name, column.encoding) for column in schema.columns] == [
        (1, "id", "auto"),
        (2, "note", "auto"),
    ]
    assert schema.next_column_id == 3
    assert TableSchema.model_validate_json(schema.model_dump_json()) == schema


def test_an_arrow_schema_with_options_makes_a_definition():
    arrow = pa.schema([pa.field("id", pa.int64()), pa.field("code", pa.string())])
    options = {"code": ColumnOptions(type="varchar(3)", encoding="dict", compression="lz4", write_default="abc")}
    made = TableDefinition.from_arrow("t", arrow, ["id"], options)
    schema = TableSchema.create(made, Limits())
    code = schema.column("code")
    assert (code.type, code.encoding, code.compression, code.write_default) == (
        "varchar(3)",
        "dictionary",
        "lz4",
        "abc",
    )
    assert not schema.column("id").nullable, "a key column is never nullable"
    assert schema.arrow.field("code").type == pa.string()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (definition(ID, key=[]), "needs a primary key"),
        (definition(ColumnDefinition(name="v", type="int8"), ID), "leading columns"),
        (definition(ID, key=["id", "id"]), "leading columns"),
        (definition(ColumnDefinition(name="id", type="int64")), "must not be nullable"),
        (definition(ColumnDefinition(name="id", type="double", nullable=False)), "cannot be a key"),
        (definition(ID, ID), "two columns"),
        (definition(ID, name=""), "non-empty"),
        (definition(ID, name="x" * 257), "at most 256"),
        (definition(ID, name="a\0b"), "NUL"),
        (definition(ID, ColumnDefinition(name="_op", type="int8")), "the change feed has columns of this name"),
        (definition(ID, ColumnDefinition(name="v", type="uint7")), "unknown column type"),
        (definition(ID, ColumnDefinition(name="v", type="double", encoding="rle")), "cannot be encoded"),
        (definition(ID, ColumnDefinition(name="v", type="double", compression="brotli")), "unknown compression"),
        (definition(ID, ColumnDefinition(name="v", type="int8", write_default=300)), "write_default"),
        (definition(ID, ColumnDefinition(name="v", type="int8", comment="c" * 257)), "256 bytes"),
    ],
)
def test_a_broken_rule_is_named(wrong, why):
    with pytest.raises(InvalidArgumentError, match=why):
        TableSchema.create(wrong, Limits())


def test_too_many_columns_are_refused():
    columns = [ColumnDefinition(name=f"v{number}", type="int8") for number in range(300)]
    with pytest.raises(InvalidArgumentError, match="at most 300"):
        TableSchema.create(definition(ID, *columns), Limits())


def test_an_unknown_column_is_answered_with_the_known_ones():
    schema = TableSchema.create(definition(ID), Limits())
    with pytest.raises(InvalidArgumentError, match="the columns are id"):
        schema.column("nope")
