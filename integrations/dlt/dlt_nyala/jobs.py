"""The jobs of a load. A file is one commit; the files of a table that is replaced are one, with its nested tables.

A job may run again, after a crash or a lost answer. Its transaction has a name that the job decides, so that the server
applies it once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dlt.common.destination.client import HasFollowupJobs, RunnableLoadJob
from dlt.common.schema.utils import get_columns_names_with_prop, get_first_column_name_with_prop
from dlt.common.storages import ParsedLoadJobFileName
from dlt.destinations.job_impl import ReferenceFollowupJobRequest

from nyala.clients.api.transaction import Transaction

from .tables import errors_of_dlt, read, split_deleted

if TYPE_CHECKING:
    from .client import NyalaClient


class _Job(RunnableLoadJob):
    """A job whose writes are one transaction."""

    def run(self) -> None:
        """Write, in one commit."""
        name = f"dlt-{self._load_id}-{self._parsed_file_name.file_id}-{self._parsed_file_name.file_format}"
        with errors_of_dlt(), self._client.database.transaction(name) as transaction:
            self._write(transaction)

    def _write(self, transaction: Transaction) -> None:
        raise NotImplementedError

    @property
    def _client(self) -> NyalaClient:
        return cast("NyalaClient", self._job_client)

    def _rows(self, table: str, path: str) -> pa.RecordBatchReader:
        columns = self._client.table(table).schema
        return read(path, columns, self._client.load_id_column, self._load_id)


class FileJob(_Job, HasFollowupJobs):
    """Write a file: add its rows, or merge them by their key."""

    def _write(self, transaction: Transaction) -> None:
        table = self._load_table
        name, rows = self._client.table_name(table["name"]), self._rows(table["name"], self._file_path)
        if table.get("write_disposition") != "merge":
            transaction.insert(name, rows)
        elif self._client.merge_strategy(table) == "insert-only":
            transaction.insert_ignore(name, rows)
        elif mark := get_first_column_name_with_prop(table, "hard_delete"):
            key = get_columns_names_with_prop(table, "primary_key")
            present, deleted = split_deleted(rows.read_all(), key, mark)
            transaction.upsert(name, present)
            transaction.delete_ignore(name, deleted.select(key))
        else:
            transaction.upsert(name, rows)


class _ChainJob(_Job):
    """A job over the files of a table and of its nested tables, after all of them have come."""

    def _files(self) -> dict[str, list[str]]:
        """Return the paths of the files of each table."""
        files: dict[str, list[str]] = {}
        for path in ReferenceFollowupJobRequest.resolve_references(self._file_path):
            files.setdefault(ParsedLoadJobFileName.parse(path).table_name, []).append(path)
        return files


class ReplaceJob(_ChainJob):
    """Replace the rows of a table and of its nested tables: readers see the old rows or the new ones."""

    def _write(self, transaction: Transaction) -> None:
        files = self._files()
        for table in self._client.chain(self._load_table["name"]):
            transaction.truncate(self._client.table_name(table))
            for path in files.get(table, []):
                transaction.insert(self._client.table_name(table), self._rows(table, path))


class OrphanJob(_ChainJob):
    """Delete the rows of nested tables that belong to a merged row and did not come with it."""

    def _write(self, transaction: Transaction) -> None:
        files = self._files()
        root, *nested = map(self._client.prepare_load_table, self._client.chain(self._load_table["name"]))
        row_key = get_first_column_name_with_prop(root, "row_key")
        mark = get_first_column_name_with_prop(root, "hard_delete")
        rows = _read(files[root["name"]], [row_key, mark] if mark else [row_key])
        present = split_deleted(rows, [row_key], mark)[0] if mark else rows
        for table in nested:
            key = get_first_column_name_with_prop(table, "row_key")
            owner = get_first_column_name_with_prop(table, "root_key")
            owner = owner or get_first_column_name_with_prop(table, "parent_key")
            came = _read(files.get(table["name"], []), [key, owner])
            came = came.filter(_is_in(came[owner], present[row_key]))
            for batch in self._client.table(table["name"]).scan([key, owner]):
                is_orphan = pc.and_not(_is_in(batch[owner], rows[row_key]), _is_in(batch[key], came[key]))
                if orphans := batch.filter(is_orphan).select([key]):
                    transaction.delete_ignore(self._client.table_name(table["name"]), orphans)


def _read(paths: list[str], columns: list[str]) -> pa.Table:
    """Return columns of the rows of Parquet files. They are ids, which are text, and a mark of deleted rows."""
    tables = [pq.read_table(path, columns=columns) for path in paths]
    return pa.concat_tables(tables) if tables else pa.table({name: pa.array([], pa.string()) for name in columns})


def _is_in(values: pa.Array | pa.ChunkedArray, others: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.is_in(values, others.combine_chunks())
