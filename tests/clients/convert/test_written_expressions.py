"""A canary for ``clients/convert/expression.py``, which reads what pyarrow pickles: nothing promises that form."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from nyala.clients.convert.expression import _metadata

EXPRESSION = (pc.field("x") > 5) & ~pc.field("s").isin(["a", "b"])
WORDS = [
    ("call", "and_kleene"),
    ("call", "greater"),
    ("field_ref", "x"),
    ("literal", "0"),
    ("end", "greater"),
    ("call", "invert"),
    ("call", "is_in"),
    ("field_ref", "s"),
    ("options", "1"),
    ("end", "is_in"),
    ("end", "invert"),
    ("end", "and_kleene"),
]
CHANGED = (
    f"pyarrow {pa.__version__} pickles expressions in another form: teach it to clients/convert/expression.py, "
    "keep reading the old one, and only then change this test"
)


def written(expression: pc.Expression) -> pa.RecordBatch:
    """Return the record batch that pyarrow pickles."""
    _, arguments, *_ = expression.__reduce__()
    assert len(arguments) == 1 and isinstance(arguments[0], pa.Buffer), CHANGED
    return pa.ipc.open_file(arguments[0]).get_batch(0)


def test_an_expression_is_written_as_one_row_of_literals_and_options() -> None:
    batch = written(EXPRESSION)
    assert (batch.num_rows, batch.num_columns, batch.column(0)[0].as_py()) == (1, 2, 5), CHANGED
    assert batch.column(1)[0].as_py()["value_set"] == ["a", "b"], CHANGED


def test_the_metadata_is_the_tree() -> None:
    assert _metadata(written(EXPRESSION).schema) == WORDS, CHANGED


def test_a_nested_field_and_a_position_are_told_apart_from_a_name() -> None:
    assert _metadata(written(pc.field(("a", "b")) > 5).schema)[1][0] == "nested_field_ref", CHANGED
    with pytest.raises(pa.ArrowNotImplementedError):
        written(pc.field(0) > 5)


@pytest.mark.parametrize("texts", [{"one": "1"}, {"": ""}, {"caf\xe9": "x" * 70_000, "b": "", "c": "\u2603"}])
def test_metadata_is_read_from_memory_as_pyarrow_tells_it(texts: dict[str, str]) -> None:
    schema = pa.schema([("a", pa.int8())], metadata=texts)
    assert dict(_metadata(schema)) == {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    assert dict(_metadata(schema)) == texts
