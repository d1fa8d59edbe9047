"""What dlt asks of a destination: tables that follow a schema, jobs for files, and the state of pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from types import TracebackType
from typing import Any

import pyarrow as pa
from dlt.common.destination import DestinationCapabilitiesContext, PreparedTableSchema
from dlt.common.destination.client import (
    FollowupJobRequest,
    JobClientBase,
    LoadJob,
    StateInfo,
    StorageSchemaInfo,
    WithStateSync,
)
from dlt.common.destination.exceptions import DestinationUndefinedEntity
from dlt.common.destination.utils import resolve_merge_strategy
from dlt.common.json import json
from dlt.common.schema import Schema, TSchemaTables
from dlt.common.schema.typing import C_DLT_LOAD_ID
from dlt.common.schema.utils import get_nested_tables, has_table_seen_data
from dlt.common.storages import FileStorage, ParsedLoadJobFileName
from dlt.common.storages.load_package import LoadJobInfo
from dlt.destinations.job_impl import FinalizedLoadJobWithFollowupJobs, ReferenceFollowupJobRequest
from dlt.destinations.utils import verify_schema_merge_disposition

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table

from .configuration import NyalaConfiguration
from .jobs import FileJob, OrphanJob, ReplaceJob
from .tables import Key, arrow_field, check_key, create, errors_of_dlt, key


class NyalaClient(JobClientBase, WithStateSync):
    """One dataset of a Nyala server, for one schema of dlt."""

    config: NyalaConfiguration

    def __init__(
        self, schema: Schema, config: NyalaConfiguration, capabilities: DestinationCapabilitiesContext
    ) -> None:
        super().__init__(schema, config, capabilities)
        self._dataset = config.normalize_dataset_name(schema)
        self.load_id_column = self._column(C_DLT_LOAD_ID)
        """The column with the id of the load that a row came by."""

    @cached_property
    def database(self) -> Database:
        """The server's database."""
        with errors_of_dlt():
            return self.config.credentials.open()

    def __enter__(self) -> NyalaClient:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        if database := self.__dict__.pop("database", None):
            database.close()

    def table_name(self, name: str) -> str:
        """Return the name in Nyala of a table of the schema."""
        return f"{self._dataset}{self.config.dataset_separator}{name}" if self._dataset else name

    def table(self, name: str) -> Table:
        """Return a table of the schema. Raises DestinationTerminalException if there is none."""
        with errors_of_dlt():
            return self.database.table(self.table_name(name))

    def chain(self, name: str) -> list[str]:
        """Return the table ``name`` and its nested tables that have had rows, parents first."""
        return [table["name"] for table in get_nested_tables(self.schema.tables, name) if has_table_seen_data(table)]

    def merge_strategy(self, table: PreparedTableSchema) -> str | None:
        """Return how rows of ``table`` merge: ``upsert`` or ``insert-only``."""
        return resolve_merge_strategy(self.schema.tables, table, self.capabilities)

    def is_storage_initialized(self) -> bool:
        """Return whether a load has been here: whether the table of schemas is there."""
        return self._is_there(self.schema.version_table_name)

    def initialize_storage(self, truncate_tables: Iterable[str] | None = None) -> None:
        """Delete the rows of ``truncate_tables``, in one commit."""
        names = [self.table_name(each) for each in truncate_tables or () if self._is_there(each)]
        if names:
            with errors_of_dlt(), self.database.transaction() as transaction:
                for name in names:
                    transaction.truncate(name)

    def should_truncate_table_before_load(self, table_name: str) -> bool:
        """Return False: the job that writes the new rows deletes the old ones."""
        return False

    def drop_storage(self) -> None:
        """Drop the tables of the schema, and its stored versions."""
        self.drop_tables(*self.schema.tables)

    def drop_tables(self, *tables: str, delete_schema: bool = True) -> None:
        """Drop ``tables``, and with ``delete_schema`` the stored versions of the schema."""
        with errors_of_dlt():
            for name in tables:
                if self._is_there(name):
                    self.database.drop_table(self.table_name(name))
            if delete_schema and self.is_storage_initialized():
                versions = self.table(self.schema.version_table_name)
                versions.delete_where([(self._column("schema_name"), "=", self.schema.name)])

    def verify_schema(
        self, only_tables: Iterable[str] | None = None, new_jobs: Iterable[ParsedLoadJobFileName] | None = None
    ) -> list[PreparedTableSchema]:
        """Check names, types and keys before a load. Raises the first error."""
        tables = super().verify_schema(only_tables, new_jobs)
        for error in verify_schema_merge_disposition(self.schema, tables, self.capabilities, warnings=True):
            raise error
        return tables

    def update_stored_schema(
        self,
        only_tables: Iterable[str] | None = None,
        expected_update: TSchemaTables | None = None,
        force: bool = False,
    ) -> TSchemaTables | None:
        """Create tables, and add columns, as the schema says."""
        super().update_stored_schema(only_tables, expected_update, force)
        is_stored = self.get_stored_schema_by_hash(self.schema.stored_version_hash) is not None
        if is_stored and not force:
            return {}
        with errors_of_dlt():
            update = {name: new for name in only_tables or self.schema.tables if (new := self._update_table(name))}
            if not is_stored:
                self._store_schema()
        return update

    def _update_table(self, name: str) -> Any:
        """Create a table or add its columns. Return the part of the schema that is new, or None."""
        table, full_name = self.prepare_load_table(name), self.table_name(name)
        is_there = self._is_there(name)
        present = set(self.database.table(full_name).schema.names) if is_there else set()
        if is_there:
            check_key(self.database, full_name, self._key(table))
        new = self.schema.get_new_table_columns(name, {each: {"name": each} for each in present}, True)
        if not new:
            return None
        fields = [arrow_field(column, self.capabilities) for column in new]
        if is_there:
            alteration = self.database.table(full_name).alter()
            for field in fields:
                alteration = alteration.add_column(field.name, field.type)
            alteration.apply()
        else:
            create(self.database, full_name, fields, self._key(table))
        return {**table, "columns": {column["name"]: column for column in new}}

    def _key(self, table: PreparedTableSchema) -> Key:
        own = {
            self.schema.version_table_name: Key([self._column("schema_name"), self._column("version_hash")], True),
            self.schema.loads_table_name: Key([self._column("load_id"), self._column("schema_name")], True),
        }
        return own.get(table["name"]) or key(table, self.load_id_column)

    def _is_there(self, name: str) -> bool:
        with errors_of_dlt():
            return self.table_name(name) in self.database.tables()

    def create_load_job(
        self, table: PreparedTableSchema, file_path: str, load_id: str, restore: bool = False
    ) -> LoadJob:
        """Return the job for a file. Rows that replace others wait until all have come."""
        is_replaced = table["write_disposition"] == "replace"
        if ReferenceFollowupJobRequest.is_reference_job(file_path):
            return ReplaceJob(file_path) if is_replaced else OrphanJob(file_path)
        return FinalizedLoadJobWithFollowupJobs(file_path) if is_replaced else FileJob(file_path)

    def create_table_chain_completed_followup_jobs(
        self,
        table_chain: Sequence[PreparedTableSchema],
        completed_table_chain_jobs: Sequence[LoadJobInfo] | None = None,
    ) -> list[FollowupJobRequest]:
        """Return the job that replaces the rows of a table, or that deletes orphans of its nested tables."""
        root = table_chain[0]
        is_replaced = root["write_disposition"] == "replace"
        if not is_replaced and (len(table_chain) == 1 or self.merge_strategy(root) != "upsert"):
            return []
        names = {table["name"]: place for place, table in enumerate(table_chain)}
        paths = [job.file_path for job in completed_table_chain_jobs or () if job.job_file_info.table_name in names]
        paths.sort(key=lambda path: names[ParsedLoadJobFileName.parse(path).table_name])
        return [ReferenceFollowupJobRequest(FileStorage.get_file_name_from_file_path(paths[0]), paths)]

    def complete_load(self, load_id: str) -> None:
        """Write that the load is complete."""
        row = {
            "load_id": load_id,
            "schema_name": self.schema.name,
            "status": 0,
            "inserted_at": datetime.now(UTC),
            "schema_version_hash": self.schema.version_hash,
        }
        self._upsert(self.schema.loads_table_name, row)

    def get_stored_schema(self, schema_name: str | None = None) -> StorageSchemaInfo | None:
        """Return the newest stored schema, of that name if one is given."""
        return self._stored_schema("schema_name", schema_name)

    def get_stored_schema_by_hash(self, version_hash: str) -> StorageSchemaInfo | None:
        """Return the stored schema with that hash."""
        return self._stored_schema("version_hash", version_hash)

    def get_stored_state(self, pipeline_name: str) -> StateInfo | None:
        """Return the state that the newest complete load of the pipeline stored. Raises DestinationUndefinedEntity if
        no load has been here."""
        for name in (self.schema.state_table_name, self.schema.loads_table_name):
            if not self._is_there(name):
                raise DestinationUndefinedEntity(f"there is no table {self.table_name(name)!r}")
        states = self._rows(self.schema.state_table_name, "pipeline_name", pipeline_name)
        complete = self._rows(self.schema.loads_table_name, "status", 0)
        loads = {row[self._column("load_id")] for row in complete}
        states = [row for row in states if row[self.load_id_column] in loads]
        newest = max(states, key=lambda row: row[self.load_id_column], default=None)
        return StateInfo.from_normalized_mapping(newest, self.schema.naming) if newest else None

    def _stored_schema(self, column: str, value: str | None) -> StorageSchemaInfo | None:
        if not self._is_there(self.schema.version_table_name):
            return None
        rows = self._rows(self.schema.version_table_name, column, value)
        newest = max(rows, key=lambda row: row[self._column("inserted_at")], default=None)
        return StorageSchemaInfo.from_normalized_mapping(newest, self.schema.naming) if newest else None

    def _store_schema(self) -> None:
        info = {
            "version_hash": self.schema.stored_version_hash,
            "schema_name": self.schema.name,
            "version": self.schema.version,
            "engine_version": self.schema.ENGINE_VERSION,
            "inserted_at": datetime.now(UTC),
            "schema": json.dumps(self.schema.to_dict()),
        }
        self._upsert(self.schema.version_table_name, info)

    def _upsert(self, table: str, row: dict[str, Any]) -> None:
        with errors_of_dlt():
            self.table(table).upsert([{self._column(name): value for name, value in row.items()}])

    def _rows(self, table: str, column: str, value: Any) -> list[dict[str, Any]]:
        """Return the rows of one of dlt's own tables, with times in UTC; those where ``column`` has ``value`` unless
        that is None."""
        where = None if value is None else [(self._column(column), "=", value)]
        with errors_of_dlt():
            rows: pa.Table = self.table(table).scan(where=where).to_arrow()
        for place, field in enumerate(rows.schema):
            if pa.types.is_timestamp(field.type):
                rows = rows.set_column(place, field.name, rows[place].cast(pa.timestamp("us", "UTC")))
        return rows.to_pylist()

    def _column(self, name: str) -> str:
        return self.schema.naming.normalize_identifier(name)
