"""SmallRequests: the reads and writes that go by a session. For all others, and old servers, there are other ways."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pydantic_core import from_json
from pydantic_core import to_json as json_of

from ...schemas.cells.literal import to_json
from ...schemas.errors import InvalidArgumentError, UnavailableError
from ...schemas.protocol.service import ScanStream
from ...schemas.protocol.session import RowCells, answer_of, cells_to_json, request
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.write import WriteCommand, WriteResult
from ...schemas.store.description import TableDescription
from .errors import told_error
from .sessions import Sessions

_BYTES_MAX = 64 << 10
"""Of a batch, a key or a filter: what is larger gains nothing."""
_REMEMBERED = 256
_SKIPPED_MAX = 64
_FRAME_BYTES = 8
"""What comes before the head of an Arrow message; the last four have its length."""
_PLAIN = frozenset({int, str, bool})


class SmallRequests:
    """Sends a client's small reads and writes to one server by a session. Thread safe. Each method returns None if
    another way has to be taken.

    All of them may be repeated: a write is numbered.
    """

    def __init__(self, sessions: Sessions, describe: Callable[[str], TableDescription]) -> None:
        self._sessions = sessions
        self._describe = describe
        self._cells: dict[tuple[int, int, int], RowCells] = {}
        """By table, version and number of columns: while an alteration has reached only some of several servers, rows
        may lack columns of their version."""
        self._lines = _FirstLines()
        self._results = _Results()
        self._long_scans = _LongScans()

    def row(self, table: str, key: Sequence[Any]) -> dict[str, Any] | None:
        """Return the server's answer for a row, as ``told_row`` does, with the ``row`` as Python values."""
        try:
            plain = _PLAIN.issuperset(map(type, key))
            second = json_of({"key": list(key) if plain else [to_json(value) for value in key]})
        except (InvalidArgumentError, ValueError, TypeError):  # the batch lane raises the right error
            return None
        said = self._told_row(table, second)
        row = None if said is None else said["row"]
        if said is None or row is None:
            return said
        version = said["table_id"], said["schema_version"], len(row)
        cells = self._cells.get(version) or self._cells_of(table, version, row)
        if cells is None:
            return None
        said["row"] = cells.to_python(row)
        return said

    def told_row(self, table: str, key: Sequence[Any]) -> dict[str, Any] | None:
        """Return the server's answer for a row, whose key is as the answer is: in the form of sessions. Its ``row`` is
        None if there is none."""
        return self._told_row(table, json_of({"key": list(key)}))

    def _told_row(self, table: str, second: bytes) -> dict[str, Any] | None:
        if len(second) > _BYTES_MAX:
            return None
        first = self._lines.gets.get(table) or self._lines.get(table)
        answer = self._sessions.ask(b"%b\n%b\n" % (first, second))
        if answer is None:
            return None
        said = from_json(answer)
        if "error" in said:
            raise told_error(said["error"])
        return said

    def _cells_of(self, table: str, version: tuple[int, int, int], row: dict[str, Any]) -> RowCells | None:
        """Find out how to read rows of a version of a table, such as ``row``; return None if it has another one by
        now."""
        about = self._describe(table)
        if (about.table_id, about.schema_version) != version[:2] or list(row) != [each.name for each in about.columns]:
            return None
        if len(self._cells) >= _REMEMBERED:
            self._cells.clear()
        return self._cells.setdefault(version, RowCells(about.columns))

    def rows(self, table: str, keys: pa.RecordBatch) -> pa.Table | None:
        """Return the live rows of the keys."""
        first = self._lines.of_batch("get_many", (table,), lambda: json_of(table), keys)
        answer = self._sessions.ask(request(first, b"", keys.serialize().to_pybytes())) if first else None
        if answer is None:
            return None
        said, _, rest = _checked(answer)
        if "large" in said:
            return None
        schema, batches = self._results.read(rest, said["rows"])
        return pa.Table.from_batches(batches, schema=schema)

    def scan(self, spec: ScanSpec) -> ScanStream | None:
        """Return the rows of a short scan."""
        text = spec.model_dump_json(exclude_none=True, exclude_defaults=True).encode()
        if len(text) > _BYTES_MAX or not self._long_scans.may_be_short(spec):
            return None
        answer = self._sessions.ask(request(b'{"scan":%b}' % text))
        if answer is None:
            return None
        said, _, rest = _checked(answer)
        is_long = "large" in said
        self._long_scans.learn(spec, is_long)
        if is_long:
            return None
        schema, batches = self._results.read(rest, said["rows"])
        return ScanStream(schema, said["snapshot"], iter(batches))

    def write(self, command: WriteCommand, writer: str, batch: pa.RecordBatch, seq: int) -> WriteResult | None:
        """Write a batch as one commit, under the number ``seq`` of ``writer``."""
        first = None
        if command.stage is None:
            first = self._lines.of_batch("write", _key(command, writer), lambda: _named(command, writer), batch)
        if first is None:
            return None
        answer = self._sessions.ask(request(first, b'{"seq":%d}' % seq, batch.serialize().to_pybytes()))
        return None if answer is None else WriteResult.model_validate_json(_checked(answer)[1])

    @property
    def takes_rows(self) -> bool:
        """Whether the server is known to take single rows by sessions."""
        return self._sessions.have_answered

    def write_row(self, command: WriteCommand, writer: str, row: Mapping[str, Any], seq: int) -> WriteResult | None:
        """Write one row, as Python values by column, to a server that ``takes_rows``; else like ``write``."""
        cells = cells_to_json(row.values())
        first = self._lines.of_row(command, writer, tuple(row)) if cells is not None else None
        if first is None:
            return None
        try:
            second = json_of({"seq": seq, "row": cells})
        except ValueError:  # text that is not UTF-8
            return None
        if len(second) > _BYTES_MAX:
            return None
        answer = self._sessions.ask(request(first, second))
        if answer is None:
            if writer == command.writer:
                return None  # another way has the same number
            # It would have another one, and an earlier attempt may have arrived.
            raise UnavailableError("the server no longer accepts sessions; it is unknown whether the row was written")
        said, line, _ = _checked(answer)
        return None if "as_batch" in said else WriteResult.model_validate_json(line)


def _checked(answer: bytes) -> tuple[dict[str, Any], bytes, bytes]:
    """Return the parts of an answer; raises the error that it tells."""
    parts = answer_of(answer)
    if "error" in parts[0]:
        raise told_error(parts[0]["error"])
    return parts


def _key(command: WriteCommand, writer: str) -> tuple[Any, ...]:
    """Return the fields that make the text of a command another one; the others have their defaults."""
    how = command.op, command.atomic, command.durability, command.if_timestamp, command.count_replaced
    rules = None if command.rules is None else tuple(command.rules.items())
    return command.table, command.table_id, *how, rules, writer


def _named(command: WriteCommand, writer: str) -> bytes:
    return command.model_copy(update={"writer": writer}).model_dump_json(exclude_defaults=True).encode()


class _Results:
    """Reads the Arrow streams of answers, whose schemas repeat. Thread safe."""

    def __init__(self) -> None:
        self._schemas: dict[bytes, pa.Schema] = {}

    def read(self, stream: bytes, rows: int) -> tuple[pa.Schema, list[pa.RecordBatch]]:
        """Return the schema and the batches of a stream with so many rows. (Opening one takes ten times as long as
        reading a batch.)"""
        length = _FRAME_BYTES + int.from_bytes(stream[4:_FRAME_BYTES], "little")
        schema = self._schemas.get(stream[:length])
        if schema is None:
            reader = pa.ipc.open_stream(stream)
            _kept(self._schemas, stream[:length], reader.schema)
            return reader.schema, list(reader)
        if not rows:
            return schema, []
        first = pa.ipc.read_record_batch(pa.py_buffer(stream)[length:], schema)
        return schema, [first] if first.num_rows == rows else list(pa.ipc.open_stream(stream))


class _FirstLines:
    """The first lines of requests, which repeat. Thread safe."""

    def __init__(self) -> None:
        self.gets: dict[str, bytes] = {}
        """Those of reads of a row, by table: see ``get``."""
        self._batches: dict[tuple[Any, ...], tuple[pa.Schema, bytes]] = {}
        self._rows: dict[tuple[Any, ...], bytes] = {}

    def get(self, table: str) -> bytes:
        """Return the first line of the read of a row."""
        return _kept(self.gets, table, json_of({"get": table}))

    def of_row(self, command: WriteCommand, writer: str, columns: tuple[Any, ...]) -> bytes | None:
        """Return the first line of the write of a row; None if it cannot go by a session."""
        if command.stage is not None:
            return None
        key = *_key(command, writer), columns
        if (known := self._rows.get(key)) is not None:
            return known
        if not all(type(name) is str for name in columns):
            return None
        line = b'{"write":%b,"columns":%b}' % (_named(command, writer), json_of(columns))
        return _kept(self._rows, key, line) if len(line) <= _BYTES_MAX else None

    def of_batch(
        self, kind: str, key: tuple[Any, ...], what: Callable[[], bytes], batch: pa.RecordBatch
    ) -> bytes | None:
        """Return the first line of a request that has a batch; None if the batch cannot go by a session. ``what``
        returns the JSON of its ``kind``, which is the same for the same ``key``."""
        if batch.get_total_buffer_size() > _BYTES_MAX:
            return None
        schema = batch.schema
        known = self._batches.get((kind, *key))
        if known is not None and known[0].equals(schema):
            return known[1]
        if any(pa.types.is_dictionary(field.type) for field in schema):
            return None
        columns = base64.b64encode(schema.serialize().to_pybytes())
        line = b'{"%b":%b,"arrow_schema":"%b"}' % (kind.encode(), what(), columns)
        return _kept(self._batches, (kind, *key), (schema, line))[1]


def _kept(known: dict[Any, Any], key: Any, value: Any) -> Any:
    if len(known) >= _REMEMBERED:
        known.clear()
    known[key] = value
    return value


class _LongScans:
    """Which scans are not worth a try, since those before were long: after each long one twice as many are skipped.
    Thread safe."""

    def __init__(self) -> None:
        self._skipped: dict[tuple[Any, ...], tuple[int, int]] = {}
        """By kind of scan: how many are skipped after a long one, and how many of these are left."""
        self._lock = threading.Lock()

    def may_be_short(self, spec: ScanSpec) -> bool:
        """Whether to try."""
        kind = _kind(spec)
        if kind not in self._skipped:
            return True
        with self._lock:
            many, left = self._skipped.get(kind, (0, 0))
            if left:
                self._skipped[kind] = many, left - 1
        return not left

    def learn(self, spec: ScanSpec, is_long: bool) -> None:
        """Remember what a scan was."""
        kind = _kind(spec)
        if not is_long and kind not in self._skipped:
            return
        with self._lock:
            many, _ = self._skipped.pop(kind, (0, 0))
            if is_long:
                many = min(2 * many or 1, _SKIPPED_MAX)
                _kept(self._skipped, kind, (many, many))


def _kind(spec: ScanSpec) -> tuple[Any, ...]:
    """Return what long scans have in common."""
    is_all = spec.where is None and spec.limit is None
    return spec.table, is_all, spec.aggregate is None, spec.changes is None, spec.ordered, spec.order_by is None
