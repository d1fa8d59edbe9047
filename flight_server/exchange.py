"""DoExchange: batched point reads. A batch of keys comes in, one batch of rows goes out, again and again."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.flight as fl

from ..schemas.command import RowCount, TableName, read_json
from ..schemas.errors import InvalidArgumentError
from ..schemas.service import StoreService
from .config import ServerConfig
from .get import sized
from .incoming import incoming
from .limits import Admission


def point_reads(
    store: StoreService,
    descriptor: fl.FlightDescriptor,
    reader: fl.MetadataRecordBatchReader,
    writer: fl.MetadataRecordBatchWriter,
    config: ServerConfig,
    admission: Admission,
) -> None:
    """Answer each batch of keys by one batch with the rows that are there, in the order asked.

    Raises:
        StoreError: for an unknown table, or keys that do not fit it.
    """
    if descriptor.descriptor_type != fl.DescriptorType.CMD:
        raise InvalidArgumentError('DoExchange takes a command: {"table": ...}')
    body = sized(descriptor.command or b"", "the command", config.request_bytes_max)
    table = read_json(TableName, body, "the command").table
    schema = pa.schema([column.field for column in store.describe_table(table).columns])
    writer.begin(schema)
    for item in incoming(reader, config, admission):
        found = _one_batch(store.get(table, item.batch), schema)
        writer.write_with_metadata(found, RowCount(rows=found.num_rows).model_dump_json().encode())


def _one_batch(found: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    batches = found.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)
