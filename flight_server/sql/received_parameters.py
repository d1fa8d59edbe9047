"""Parameters that a client sends for a prepared statement."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.errors import InvalidArgumentError
from ..requests.calls import Call
from ..requests.received_batch import received
from ..settings.config import ServerConfig

_PARAMETER_BYTES_MAX = 64 << 20


def received_parameters(reader: fl.MetadataRecordBatchReader, config: ServerConfig, call: Call) -> bytes | None:
    """Return the parameters that a client of Flight SQL sends, as a stream of Arrow IPC; None: there are none."""
    batches, size = [], 0
    for item in received(reader, config, call):
        size += item.batch.nbytes
        if size > _PARAMETER_BYTES_MAX:
            raise InvalidArgumentError(
                f"the parameters have more than {_PARAMETER_BYTES_MAX:,} bytes: send fewer rows, or ingest them"
            )
        batches.append(item.batch)
    if not batches or not batches[0].num_columns:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return sink.getvalue().to_pybytes()
