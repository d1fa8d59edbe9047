"""NyalaAdapter: what the macros ask of Python."""

from __future__ import annotations

from datetime import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from dbt.adapters.base import ConstraintSupport
from dbt.adapters.base.meta import available
from dbt.adapters.capability import Capability, CapabilityDict, CapabilitySupport, Support
from dbt.adapters.nyala.connections import NyalaConnectionManager
from dbt.adapters.nyala.relation import NyalaColumn, NyalaRelation
from dbt.adapters.sql import SQLAdapter
from dbt_common.contracts.constraints import ConstraintType
from dbt_common.exceptions import DbtRuntimeError

if TYPE_CHECKING:
    import agate
    from dbt.adapters.contracts.connection import AdapterResponse

_SCHEMA = "public"
_ZONE = r":\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)$"
_WORDS = {"t": "true", "yes": "true", "y": "true", "f": "false", "no": "false", "n": "false"}
ROW_NUMBERS = "auto_incrementing_id"
"""The column of a table whose rows may share a key. The store fills it, and no statement may."""


class NyalaAdapter(SQLAdapter):
    """dbt on a Nyala server."""

    ConnectionManager = NyalaConnectionManager
    Relation = NyalaRelation  # type: ignore[assignment]
    Column = NyalaColumn  # type: ignore[assignment]
    CONSTRAINT_SUPPORT = dict.fromkeys(ConstraintType, ConstraintSupport.NOT_SUPPORTED)
    _capabilities = CapabilityDict({Capability.SchemaMetadataByRelations: CapabilitySupport(support=Support.Full)})

    @classmethod
    def date_function(cls) -> str:
        """Return the expression for now."""
        return "now()"

    @classmethod
    def is_cancelable(cls) -> bool:
        """Return whether Ctrl-C cancels statements."""
        return True

    @classmethod
    def convert_text_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Return the type of a seed's texts."""
        return "text"

    @classmethod
    def convert_number_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Return the type of a seed's numbers."""
        from agate import MaxPrecision

        return "double precision" if agate_table.aggregate(MaxPrecision(col_idx)) else "bigint"

    @classmethod
    def convert_integer_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Return the type of a seed's integers."""
        return "bigint"

    @classmethod
    def convert_boolean_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Return the type of a seed's truth values."""
        return "boolean"

    @classmethod
    def convert_datetime_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Return the type of a seed's moments."""
        return "timestamp"

    @classmethod
    def convert_date_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Return the type of a seed's dates."""
        return "date"

    @classmethod
    def convert_time_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        """Return the type of a seed's times of day: there is none of its own."""
        return "text"

    def list_schemas(self, database: str) -> list[str]:
        """Return the one schema."""
        return [_SCHEMA]

    def check_schema_exists(self, database: str, schema: str) -> bool:
        """Return whether it is the one."""
        return schema.lower() == _SCHEMA

    def list_relations_without_caching(self, schema_relation: NyalaRelation) -> list[NyalaRelation]:  # type: ignore[override]
        """Return the tables that the user may see."""
        _, rows = self.execute(
            f"select table_name from information_schema.tables where table_schema = '{_SCHEMA}' order by 1", fetch=True
        )
        return [
            self.Relation.create(
                database=schema_relation.database, schema=schema_relation.schema, identifier=row[0], type="table"
            )
            for row in rows
        ]

    def get_columns_in_relation(self, relation: NyalaRelation) -> list[NyalaColumn]:  # type: ignore[override]
        """Return the columns of a table, without the numbers of its rows; none if there is no such table."""
        name = str(relation.identifier).replace("'", "''")
        _, rows = self.execute(
            "select column_name, data_type, numeric_precision, numeric_scale from information_schema.columns "
            f"where table_schema = '{_SCHEMA}' and table_name = '{name}' order by ordinal_position",
            fetch=True,
        )
        return [NyalaColumn(row[0], row[1], None, row[2], row[3]) for row in rows if row[0] != ROW_NUMBERS]

    @available
    def primary_key_of(self, config: Any, model: dict[str, Any], columns: list[str]) -> tuple[list[str], bool]:
        """Return the columns of the key of a model's table, and whether no two rows share it.

        It is ``primary_key``, else ``unique_key``, of a snapshot the column that names a version. A model without any
        has its first column as a key that rows may share.
        """
        is_snapshot = model.get("resource_type") == "snapshot"
        names = config.get("snapshot_table_column_names") or {}
        key = (
            names.get("dbt_scd_id", "dbt_scd_id")
            if is_snapshot
            else config.get("primary_key") or config.get("unique_key")
        )
        if not key:
            return columns[:1], False
        key_columns = [key] if isinstance(key, str) else list(key)
        for name in key_columns:
            if name not in columns:
                raise DbtRuntimeError(f"there is no column {name!r} for the key; there are: {', '.join(columns)}")
        return key_columns, True

    @available
    def columns_to_keep(self, columns: list[str]) -> list[str]:
        """Return the columns of a query that a table of its rows has: not the row numbers of another table."""
        return [name for name in columns if name != ROW_NUMBERS]

    @available
    def load_rows(self, relation: NyalaRelation, rows: agate.Table) -> AdapterResponse:
        """Append the rows of a seed to a table, in one commit. Raises DbtRuntimeError: a value has another type."""
        connection = self.connections.get_thread_connection()
        with self.connections.exception_handler(""), connection.handle.cursor() as cursor:
            cursor.execute(f"select * from {relation.render()} limit 0")
            schema = cursor.fetch_arrow_table().schema
            columns = [_column(rows.columns[name].values(), schema.field(name)) for name in rows.column_names]
            fields = [schema.field(name) for name in rows.column_names]
            cursor.adbc_ingest(relation.identifier, pa.table(columns, pa.schema(fields)), mode="append")
            return self.connections.get_response(cursor)

    def valid_incremental_strategies(self) -> list[str]:
        """Return the strategies."""
        return ["append", "merge"]


def _column(values: Any, field: pa.Field) -> pa.Array:
    """Return the values of a column of a seed as its table has them."""
    kind, values = field.type, list(values)
    try:
        if pa.types.is_string(kind):
            return pa.array([None if value is None else str(value) for value in values], kind)
        if all(value is None or isinstance(value, str) for value in values):
            return _parsed([None if value is None else value.strip() for value in values], kind)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            numbers = [None if value is None else float(value) if value % 1 else int(value) for value in values]
            return pa.array(numbers, kind)
        if pa.types.is_decimal(kind):
            return pc.cast(pa.array([None if value is None else str(value) for value in values]), kind)
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DbtRuntimeError(f"column {field.name!r} of the seed does not fit its type {kind}: {error}") from None


def _parsed(texts: list[str | None], kind: pa.DataType) -> pa.Array:
    """Return texts as cells of a type: dbt reads each column whose type the project names as text."""
    if pa.types.is_time(kind):
        return pa.array([time.fromisoformat(text) if text else None for text in texts], kind)
    if pa.types.is_boolean(kind):
        texts = [_WORDS.get(text.lower(), text) if text else None for text in texts]
    cells = pa.array([text or None for text in texts], pa.string())
    if not pa.types.is_timestamp(kind):
        return pc.cast(cells, kind)
    zoned = pc.match_substring_regex(cells, _ZONE)  # the others are in UTC
    moments = pc.if_else(zoned, cells, None).cast(pa.timestamp(kind.unit, "UTC")).cast(kind)
    return pc.coalesce(moments, pc.if_else(zoned, None, cells).cast(kind))
