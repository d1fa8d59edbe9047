"""A record batch as an Arrow IPC stream, in parts each of the size that it takes: a sink that grows copies what it has
again and again."""

import pyarrow as pa

END_OF_STREAM = pa.py_buffer(b"\xff\xff\xff\xff\0\0\0\0")


def stream_of(batch: pa.RecordBatch) -> list[pa.Buffer]:
    """Return the parts of the stream of one batch; each is a multiple of 8 bytes long."""
    return [batch.schema.serialize(), batch.serialize(), END_OF_STREAM]
