"""A session of a plain Flight client, and what tests ask by it."""

from __future__ import annotations

import base64
import json
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.flight as fl

from nyala.schemas.protocol.session import answer_of, request

COLUMNS = ["id", "city", "price"]


class Session:
    """A session of a plain Flight client."""

    begun: ClassVar[list[Session]] = []

    def __init__(self, client: fl.FlightClient) -> None:
        Session.begun.append(self)
        self.writer, self.reader = client.do_exchange(fl.FlightDescriptor.for_command(b'{"session":1}'))
        self.writer.begin(pa.schema([]))

    def send(self, first: Any, second: Any = None, rest: bytes = b"") -> None:
        self.writer.write_metadata(request(as_json(first), as_json(second), rest))

    def answer(self) -> tuple[dict[str, Any], pa.Table | None]:
        said, _, rest = answer_of(self.reader.read_chunk().app_metadata.to_pybytes())
        return said, pa.ipc.open_stream(rest).read_all() if rest else None

    def ask(self, first: Any, second: Any = None, rest: bytes = b"") -> dict[str, Any]:
        self.send(first, second, rest)
        return self.answer()[0]

    def write(self, batch: pa.RecordBatch, seq: int | None = None, more: bool = False, **command: Any) -> None:
        details = {"seq": seq, "more": more}
        self.send(write_line(batch.schema, **command), details, batch.serialize().to_pybytes())


def as_json(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()


def write_line(schema: pa.Schema, **command: Any) -> dict[str, Any]:
    return {"write": {"table": "homes", **command}, "arrow_schema": as_base64(schema)}


def as_base64(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def error_code(said: dict[str, Any]) -> str:
    text = json.dumps(said)
    assert "Traceback" not in text and ".py" not in text
    return said["error"]["code"]


def row_line(columns: list[str] = COLUMNS, **command: Any) -> dict[str, Any]:
    return {"write": {"table": "homes", **command}, "columns": columns}


def short_scan(session: Session, scan: dict[str, Any]) -> tuple[dict[str, Any], pa.Table]:
    """Return the answer to a scan; on a busy machine it may take too long to be a short one."""
    for _ in range(20):
        session.send({"scan": scan})
        said, rows = session.answer()
        if rows is not None:
            return said, rows
        assert said == {"large": True}
    raise AssertionError("no scan is short here")
