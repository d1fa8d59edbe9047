"""A Flight server of pyarrow alone, which keeps nothing:  python -m bench.ycsb.bare

It answers requests for rows with records that are always the same, and takes any write. So it shows what gRPC, Flight
and the interpreters of server and client take for such requests, on an open DoExchange, which costs Flight the least.
"""

import json
from functools import cache
from itertools import repeat

import pyarrow as pa
import pyarrow.flight as fl

from .mixes import FIELD_BYTES, FIELD_NAMES

WRITE = b"write"
"""Begins a request that is answered with nothing; others are the number of rows that are asked for."""
_ROW = {"key": 0, **dict.fromkeys(FIELD_NAMES, "x" * FIELD_BYTES)}


class BareServer(fl.FlightServerBase):
    """Answers a request for one row with JSON, for several with an Arrow stream."""

    def do_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        while True:
            try:
                request = reader.read_chunk().app_metadata.to_pybytes()
            except StopIteration:
                return
            writer.write_metadata(b"{}" if request.startswith(WRITE) else _rows(int(request)))


@cache
def _rows(count: int) -> bytes:
    if count == 1:
        return json.dumps(_ROW).encode()
    rows = pa.Table.from_pylist(list(repeat(_ROW, count)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return sink.getvalue().to_pybytes()


def main() -> None:
    """Serve at a free port, which is printed."""
    server = BareServer("grpc://127.0.0.1:0")
    print(f"grpc://127.0.0.1:{server.port}", flush=True)
    server.serve()


if __name__ == "__main__":
    main()
