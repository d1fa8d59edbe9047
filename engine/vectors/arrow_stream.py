"""A record batch as an Arrow IPC stream, in parts of the right size: a growing sink would copy its content again and
again."""

import pyarrow as pa

END_OF_STREAM = pa.py_buffer(b"\xff\xff\xff\xff\0\0\0\0")


def stream_of(batch: pa.RecordBatch) -> list[pa.Buffer]:
    """Return an Arrow stream with one batch in parts; the length of each is a multiple of 8 bytes."""
    return [batch.schema.serialize(), batch.serialize(), END_OF_STREAM]
