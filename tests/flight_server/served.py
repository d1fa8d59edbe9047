"""A server in this process and a plain Arrow Flight client, as tests want them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl

from nyala.flight_server.security.security import Security
from nyala.flight_server.server import FlightServer
from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.protocol.service import StoreService

if TYPE_CHECKING:
    from nyala.flight_server.requests.traces import Traces

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("city", pa.string()), ("price", pa.float64())])


class Served:
    """A store, the server in front of it and a plain Flight client."""

    def __init__(
        self,
        store: StoreService,
        config: ServerConfig | None = None,
        security: Security | None = None,
        traces: Traces | None = None,
    ) -> None:
        self.store = store
        scheme = "grpc+tls" if security and security.tls else "grpc"
        self.server = FlightServer(store, f"{scheme}://127.0.0.1:0", config, security, traces)
        self.url = f"{scheme}://127.0.0.1:{self.server.port}"
        self.client = fl.connect(self.url)

    def rows(self, count: int, start: int = 0) -> pa.RecordBatch:
        """Rows of the table ``homes``."""
        ids = range(start, start + count)
        return pa.record_batch(
            [pa.array(ids, pa.int64()), pa.array([f"city {i % 7}" for i in ids]), pa.array(ids, pa.float64())],
            schema=SCHEMA,
        )

    def action(self, name: str, body: Any = None) -> Any:
        """The JSON answer of an action."""
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        (result,) = self.client.do_action(fl.Action(name, sent))
        return json.loads(result.body.to_pybytes())

    def get(self, ticket: Any) -> pa.Table:
        """All rows of a ticket, given as JSON or as bytes."""
        sent = ticket if isinstance(ticket, bytes) else json.dumps(ticket).encode()
        return self.client.do_get(fl.Ticket(sent)).read_all()

    def put(self, command: Any, *batches: pa.RecordBatch, metadata: tuple[bytes, ...] = ()) -> list[dict[str, Any]]:
        """Send batches in one stream; return the answers. ``command`` is a table's name (a path) or JSON."""
        with_path = isinstance(command, str)
        descriptor = (
            fl.FlightDescriptor.for_path(command) if with_path else fl.FlightDescriptor.for_command(json.dumps(command))
        )
        writer, reader = self.client.do_put(descriptor, batches[0].schema if batches else SCHEMA)
        answers = []
        try:
            for number, batch in enumerate(batches):
                if number < len(metadata):
                    writer.write_with_metadata(batch, metadata[number])
                else:
                    writer.write_batch(batch)
            writer.done_writing()
            while (answer := reader.read()) is not None:
                answers.append(json.loads(answer.to_pybytes()))
        finally:
            writer.close()
        return answers

    def ids(self) -> list[int]:
        """The keys in ``homes``."""
        return self.get({"table": "homes", "columns": ["id"], "ordered": True})["id"].to_pylist()


def code_of(error: BaseException) -> str:
    """The code word of an error that came over Flight; checks that it shows nothing of the server's inside."""
    text = str(error)
    assert "Traceback" not in text and ".py" not in text and 'File "' not in text
    extra = json.loads(error.extra_info)  # pyright: ignore[reportAttributeAccessIssue]
    assert set(extra) - {"retry_after_seconds", "locations", "request_id"} == {"code", "message"}
    assert f"{extra['code']}: {extra['message']}" in text
    return extra["code"]
