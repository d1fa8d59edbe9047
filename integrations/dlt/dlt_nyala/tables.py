"""How a table of dlt stands in Nyala: its key, its columns, and the rows of a file of a load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dlt.common.destination import DestinationCapabilitiesContext
from dlt.common.destination.exceptions import (
    DestinationTerminalException,
    DestinationTransientException,
)
from dlt.common.libs.pyarrow import get_py_arrow_datatype
from dlt.common.schema.typing import TColumnSchema
from dlt.common.schema.utils import get_columns_names_with_prop, get_first_column_name_with_prop, is_nested_table

from nyala.clients.api.database import Database
from nyala.schemas.errors import ConflictError, StoreError, UnavailableError

NUMBER = "auto_incrementing_id"
"""The column that Nyala adds to the key of a table whose rows may share it."""


@dataclass(frozen=True)
class Key:
    """The primary key of a table, and whether it is unique."""

    columns: list[str]
    unique: bool


def key(table: Mapping[str, Any], load_id: str) -> Key:
    """Return the key of the prepared ``table``; ``load_id`` is the name of the column with the id of a load.

    Rows that merge have the key that they merge by: the primary key, and in a nested table the id of the row. Other
    rows may be alike. They have the primary key if one is given, else the load, so that rows are stored as they come.
    """
    names = get_columns_names_with_prop(table, "primary_key")
    if table.get("write_disposition") != "merge":
        return Key(names or [load_id], False)
    if is_nested_table(table):
        row = get_first_column_name_with_prop(table, "row_key")
        names = [row] if row else []
    return Key(names, True)


def arrow_field(column: TColumnSchema, able: DestinationCapabilitiesContext) -> pa.Field:
    """Return a column of a table as Arrow has it. Times of a day become text: Nyala has no type for them."""
    kind = pa.string() if column["data_type"] == "time" else get_py_arrow_datatype(column, able, "UTC")
    return pa.field(column["name"], kind, nullable=column.get("nullable", True))


def create(db: Database, name: str, columns: Sequence[pa.Field], key: Key) -> None:
    """Create the table ``name``, its key first. A column of the key that dlt does not have holds text."""
    fields = {field.name: field for field in columns}
    first = [fields.pop(each, pa.field(each, pa.string())).with_nullable(False) for each in key.columns]
    schema = pa.schema([*first, *fields.values()])
    db.create_table(name, schema, primary_key=key.columns, unique_key=key.unique, if_not_exists=True)


def check_key(db: Database, name: str, key: Key) -> None:
    """Raise DestinationTerminalException if rows can't be merged by ``key`` into the table ``name`` that is there."""
    present = db.table(name).primary_key
    if key.unique and set(present) != set(key.columns):
        raise DestinationTerminalException(
            f"rows can't be merged into the table {name!r} by ({', '.join(key.columns)}): its key is"
            f" ({', '.join(present)}); load into another table, or drop this one, as refresh='drop_resources' does"
        )


def read(path: str, columns: pa.Schema, load_id: str, load: str) -> pa.RecordBatchReader:
    """Return the rows of a Parquet file as the table with ``columns`` takes them: a column that the file lacks is NULL,
    and the column ``load_id`` has the id of the load."""
    file = pq.ParquetFile(path)
    schema = pa.schema([_field(file.schema_arrow, field) for field in columns if field.name != NUMBER])

    def array(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name in batch.schema.names:
            return batch.column(field.name).cast(field.type)
        return pa.repeat(load, batch.num_rows) if field.name == load_id else pa.nulls(batch.num_rows, field.type)

    return pa.RecordBatchReader.from_batches(
        schema,
        (pa.record_batch([array(batch, field) for field in schema], schema=schema) for batch in file.iter_batches()),
    )


def _field(file: pa.Schema, column: pa.Field) -> pa.Field:
    """Return the type in which a column is sent: that of the file, except that times of a day are text."""
    if column.name not in file.names:
        return column
    kind = file.field(column.name).type
    return pa.field(column.name, pa.string() if pa.types.is_time(kind) else kind)


def split_deleted(rows: pa.Table, key: Sequence[str], mark: str) -> tuple[pa.Table, pa.Table]:
    """Return the rows to write, and the keys of rows to delete: where ``mark`` is true, or for a mark that is not a
    bool, where it is not NULL. Of several rows with one key the last counts."""
    numbered = rows.select(key).append_column("last row", pa.array(range(rows.num_rows), pa.int64()))
    rows = rows.take(numbered.group_by(list(key)).aggregate([("last row", "max")])["last row_max"])
    marks = rows[mark]
    is_deleted = pc.fill_null(marks, False) if pa.types.is_boolean(marks.type) else pc.is_valid(marks)
    return rows.filter(pc.invert(is_deleted)), rows.filter(is_deleted)


@contextmanager
def errors_of_dlt() -> Iterator[None]:
    """Raise errors of the store as those that dlt repeats a job for, or does not."""
    try:
        yield
    except (UnavailableError, ConflictError) as error:
        raise DestinationTransientException(str(error)) from error
    except StoreError as error:
        raise DestinationTerminalException(str(error)) from error
