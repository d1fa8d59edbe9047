"""A session: a DoExchange that stays open, takes small reads and writes, and answers them in order.

Requests take effect in their order. A write that says that more follows is answered by a second thread, while the next
ones are received and applied; every other request waits for those before it. A request that fails is answered with its
error, and the session goes on. Slots are taken for each request: an idle session is nothing that a stopping server
waits for, but what it has begun is answered before.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.flight as fl
from pydantic_core import to_json

from ...schemas.cells.literal import from_json
from ...schemas.errors import InvalidArgumentError, StoreError, UnavailableError
from ...schemas.protocol.command import read_json
from ...schemas.protocol.keys import key_values
from ...schemas.protocol.request import Request, serving
from ...schemas.protocol.service import PendingResult, RowPlanner, RowRelay, StoreService
from ...schemas.protocol.session import RowCells, SessionDetails, SessionRequest, is_plain, parts_of
from ...schemas.protocol.verb import Kind
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.write import CommitMode, Durability, WriteCommand, WriteResult
from ...schemas.store.description import TableDescription
from ...schemas.store.metrics import Histogram
from ..errors.errors import Translator, told
from ..errors.request_log import mark, new_request_id
from ..native.message_hook import inspecting
from ..requests.calls import Call, Calls
from ..requests.message_size import BrokenMessageError, decoded_bytes
from ..requests.received_batch import BodyReader
from .combined_session import CombinedSession
from .combining import Combining
from .kept_gets import KeptGets, kept_gets
from .session_answers import Ask, Rows, SessionAnswers
from .session_row import SessionRow, details_of
from .short_scan import LongScanError, short_scan

if TYPE_CHECKING:
    from .session_spans import RequestSpan

REQUEST_BYTES_MAX = 1 << 20
_LINE_BYTES_MAX = 64 << 10
_KNOWN_MAX = 64
"""First lines whose meaning a session remembers."""
_KNOWN_BYTES_MAX = 128 << 10
"""So many bytes of first lines: what they mean takes several times as much memory."""
_NO_DETAILS = SessionDetails()
_NO_ROWS = "a session takes only messages without a record batch: send the request as app_metadata"
_LARGE = b'{"large":true}'
_KEYS_MAX = 1 << 16
"""Runs and NULLs take a few bytes for any number of keys, whose rows might not fit into memory."""
_AS_BATCH = b'{"as_batch":true}'

Result = TypeVar("Result")


def run_session(
    store: StoreService,
    reader: fl.MetadataRecordBatchReader,
    writer: fl.MetadataRecordBatchWriter,
    calls: Calls,
    call: Call,
    translator: Translator,
    combining: Combining,
) -> None:
    """Answer the requests of a session, a DoExchange that stays open, until the client ends the stream.

    Raises:
        StoreError: a message has a record batch, or the server stops.
    """

    call.span = None  # each request has one
    answers = SessionAnswers(writer, call, calls.config.writes_ahead, lambda error: _failed(error, translator))
    kept = kept_gets(store, reader, calls, call)
    combined = None
    calls.admission.due.add(answers.count)
    try:
        request = Request(call.peer.address, call.look, call.id, call.watch, call.peer.user)
        gatherer = store.gatherer() if kept is not None and isinstance(store, RowPlanner) else None
        if kept is not None and gatherer is not None:
            answers.count.carried_out = kept.hook.carried_out
            combined = CombinedSession(gatherer, kept, calls, call, request, _told)
            combining.add(combined)
        session = _Session(store, calls, call, answers, kept, combined)
        with serving(request):
            while (message := session.next(reader)) is not None:
                call.check_time()
                call.received(len(message))
                call.next_request()
                answers.count.begun += 1
                try:
                    session.take(message)
                except Exception as error:
                    mark(error, call.id())
                    answers.wait()
                    answers.send(_failed(error, translator))
    finally:
        if combined is not None:
            combining.remove(combined)
        if kept is not None:
            kept.close()
        answers.close()  # before an error goes out, too: writes in flight are commits, and their answers are due
        calls.admission.due.remove(answers.count)


def _next(reader: fl.MetadataRecordBatchReader, call: Call) -> bytes | None:
    """Return the next message; None at the end of the stream."""
    try:
        with _REFUSING:
            chunk = reader.read_chunk()
    except StopIteration:
        return None
    except (pa.ArrowException, OSError) as error:
        raise InvalidArgumentError(f"the message is not valid Arrow: {str(error).partition(chr(10))[0]}") from None
    finally:
        call.waiting_since = None
    if chunk.data is not None:
        raise InvalidArgumentError(_NO_ROWS)
    said = chunk.app_metadata
    return said.to_pybytes() if said else b""


def _refuse_rows(head: memoryview, body: memoryview) -> None:
    """Refuse a record batch before it is decoded. The schema, which comes first, is none."""
    try:
        is_refused = decoded_bytes(head, body) != (0, False)
    except BrokenMessageError:
        is_refused = True
    if is_refused:
        raise InvalidArgumentError(_NO_ROWS)


_REFUSING = inspecting(_refuse_rows)


def _failed(error: BaseException, translator: Translator) -> bytes:
    return to_json({"error": told(translator.public(error, "session"))})


class _Session:
    """For the thread of the session."""

    def __init__(
        self,
        store: StoreService,
        calls: Calls,
        call: Call,
        answers: SessionAnswers,
        kept: KeptGets | None,
        combined: CombinedSession | None,
    ) -> None:
        self.store = store
        self.relay = store if isinstance(store, RowRelay) else None
        self.admission = calls.admission
        self.call = call
        self.answers = answers
        self.kept = kept
        self._combined = combined
        self.message = b""
        """The request that is being carried out."""
        self._config = calls.config
        self._bodies = BodyReader(calls.config)
        self._known: dict[bytes, tuple[Ask, Histogram]] = {}
        self._known_bytes = 0
        self._began: float | None = None
        """When the request began that is being carried out; None once its answer is left to another thread."""
        self._times = calls.metrics.of("session_write")
        self._spans = None
        if calls.traces is not None:
            from .session_spans import Spans

            self._spans = Spans(calls.traces, call, answers)

    def next(self, reader: fl.MetadataRecordBatchReader) -> bytes | None:
        """Return the next message that is not answered by a kept answer; None at the end of the stream."""
        self.call.waiting_since = now = time.monotonic()
        if self.kept is None:
            return _next(reader, self.call)
        is_next = not self.answers.are_sent
        self.kept.are_answered(now, is_next)
        if self._combined is not None:
            self._combined.are_taken(now, is_next)
        message = _next(reader, self.call)
        self.kept.count()
        return message

    def take(self, message: bytes) -> None:
        """Carry out a request, and answer it or let it be answered. Raises what is wrong with it."""
        if self._combined is not None and (prepared := self._combined.prepared) is not None:
            if isinstance(prepared, StoreError):
                raise prepared
            self.answers.send(*prepared)
            return
        self.message = message
        if len(message) > REQUEST_BYTES_MAX:
            raise InvalidArgumentError(
                f"the request has {len(message):,} bytes; at most {REQUEST_BYTES_MAX:,} are allowed in a session"
            )
        first, second, body = parts_of(message)
        ask, times = self._known.get(first) or self._learnt(first)
        if len(second) > _LINE_BYTES_MAX:
            raise InvalidArgumentError(f"the second line has more than {_LINE_BYTES_MAX:,} bytes")
        details = details_of(second) if second else _NO_DETAILS
        self._began = time.perf_counter()
        try:
            ask(details, body)
        finally:
            if self._began is not None:
                seconds = time.perf_counter() - self._began
                times.add(seconds)
                if seconds >= self.call.log.slow_seconds:
                    self.call.log.took(seconds, self.call.id(), "session", self.call.user)

    def _learnt(self, first: bytes) -> tuple[Ask, Histogram]:
        if len(first) > _LINE_BYTES_MAX:
            raise InvalidArgumentError(
                f"the first line has {len(first):,} bytes, at most {_LINE_BYTES_MAX:,} are allowed; send longer "
                "requests by DoGet or DoPut"
            )
        asked, kind = _asked(first)
        verb = f"session_{kind}"
        if len(self._known) >= _KNOWN_MAX or self._known_bytes + len(first) > _KNOWN_BYTES_MAX:
            self._known.clear()
            self._known_bytes = 0
            if self._combined is not None:
                self._combined.forget()
        known = self._ask_for(asked, first), self.call.metrics.of(verb)
        if self._spans is not None:
            known = self._spans.around(known[0], verb, asked), known[1]
        if asked.scan is not None:  # scans differ in their filters, and would push out what comes again
            return known
        self._known[first] = known
        self._known_bytes += len(first)
        return known

    def _ask_for(self, asked: SessionRequest, first: bytes) -> Ask:
        if asked.get is not None:
            get = _Get(asked.get, self)
            if self._combined is not None:
                self._combined.learn(first, get.row)
            return get.ask
        if asked.scan is not None:
            spec = asked.scan.checked()
            if self._combined is not None:
                self._combined.learn_scans(self._scanned_line)
            return lambda details, body: self._scan(spec)
        if asked.get_many is not None:
            table, schema = asked.get_many, _schema(asked.arrow_schema)
            return lambda details, body: self._get_many(table, self._bodies.batch(body, schema))
        assert asked.write is not None, "the last of the four"
        return self._ask_to_write(asked.write, asked, first)

    def _ask_to_write(self, command: WriteCommand, asked: SessionRequest, first: bytes) -> Ask:
        if command.stage is not None or command.commit is CommitMode.STREAM:
            raise InvalidArgumentError("a write in a session is one commit: use DoPut for `stage` and `commit`")
        if asked.columns is not None:
            row = SessionRow(self.store, command, asked.columns)
            if self._combined is not None:
                self._combined.learn(first, row)
            return lambda details, body: self._write_row(details, row)
        schema = _schema(asked.arrow_schema)

        def ask(details: SessionDetails, body: bytes) -> None:
            batch = self._bodies.batch(body, schema)

            def begin() -> PendingResult:
                return self.store.begin_write(command, batch, details.seq)

            if details.more:
                self._begin(begin)
            else:
                self._finish(lambda: begin().result())

        return ask

    def _write_row(self, details: SessionDetails, row: SessionRow) -> None:
        if details.more:
            self._begin(lambda: row.begin(details))
        else:
            self._finish(lambda: row.write(details))

    def _begin(self, begin: Callable[[], PendingResult | None]) -> None:
        """Begin a write that the second thread answers."""
        pending = self._admitted(Kind.PUT, begin)
        began, self._began = self._began, None
        span = self._spans.taken() if self._spans is not None else None
        self.answers.add(lambda: self._written_later(pending, began, span))

    def _written_later(self, pending: PendingResult | None, began: float | None, span: RequestSpan | None) -> bytes:
        try:
            result = None if pending is None else pending.result()
        except BaseException as error:
            mark(error, new_request_id() if span is None else span.request_id)
            if span is not None:
                span.failed(error)
            raise
        finally:
            if began is not None:
                self._times.add(time.perf_counter() - began)
        if span is not None:
            span.wrote(0 if result is None else result.applied)
        return self._written(result)

    def _finish(self, write: Callable[[], WriteResult | None]) -> None:
        """Carry out a write, and answer it."""
        self.answers.wait()
        self.answers.send(self._written(self._admitted(Kind.PUT, write)))

    def _written(self, result: WriteResult | None) -> bytes:
        if result is None:
            return _AS_BATCH
        self.call.wrote(result.applied)
        return _told(result)

    def _admitted(self, kind: Kind, work: Callable[[], Result]) -> Result:
        """Do some work in a slot of a kind."""
        admission, peer = self.admission, self.call.peer
        admission.enter(kind, peer, self.call.check)
        try:
            return work()
        finally:
            admission.leave(kind, peer)

    def _scan(self, spec: ScanSpec) -> None:
        self.answers.wait()
        self.answers.send(*self._admitted(Kind.READ, lambda: self._scanned(spec)))

    def _scanned(self, spec: ScanSpec) -> tuple[bytes, Rows | None]:
        try:
            snapshot, found = short_scan(self.store, spec, self.call)
        except LongScanError:
            return _LARGE, None
        return to_json({"rows": found.count, "snapshot": snapshot}), found

    def _scanned_line(self, first: bytes) -> tuple[bytes, Rows | None] | None:
        """Return the answer to a first line; None if it asks for no scan."""
        spec = _asked(first)[0].scan
        return None if spec is None else self._scanned(spec.checked())

    def _get_many(self, table: str, keys: pa.RecordBatch) -> None:
        self.answers.wait()
        if keys.num_rows > _KEYS_MAX:
            self.answers.send(_LARGE)
            return
        with self.call.working():  # long lists of keys take turns
            found = self._admitted(Kind.READ, lambda: self._few_rows(table, keys))
        if found is None:
            self.answers.send(_LARGE)
        else:
            self.answers.send(to_json({"rows": found.count}), found)

    def _few_rows(self, table: str, keys: pa.RecordBatch) -> Rows | None:
        """Return the rows of keys; None if they are too many for a session, of which some were read then."""
        found = self.store.look_up(table, keys)
        batches: list[pa.RecordBatch] = []
        size = 0
        for batch in found.batches:
            size += batch.nbytes
            if size > self._config.sent_bytes_min:
                found.close()
                return None
            batches.append(batch)
        return Rows.of(found.schema, batches)


class _Get:
    """The reads of single rows of a table."""

    def __init__(self, table: str, session: _Session) -> None:
        self._table = table
        self._session = session
        self._known: _RowWords | None = None

    def ask(self, details: SessionDetails, body: bytes) -> None:
        """See ``Ask``."""
        if details.key is None:
            raise InvalidArgumentError('get needs a key in the second line: {"key": [...]}')
        session = self._session
        session.answers.wait()
        call = session.call
        session.admission.enter(Kind.READ, call.peer, call.check)
        try:
            answer = self.row(details.key, session.message)
        finally:
            session.admission.leave(Kind.READ, call.peer)
        session.answers.send(answer)

    def row(self, key: list[Any], message: bytes) -> bytes:
        """Return the answer to a get of a key, whose ``message`` it is; may raise StoreError."""
        session, words = self._session, self._known
        if session.relay is not None and (answer := session.relay.told_row(self._table, key)) is not None:
            session.call.sent_rows += answer["row"] is not None
            return to_json(answer)
        about = session.store.describe_table(self._table)
        if words is None or words.about is not about:
            words = self._known = _RowWords(about)
        stamp, kept = None, session.kept
        if kept is None:
            row = session.store.get_row(about, words.key(key))
        else:
            row, stamp = kept.row(about, words.key(key))
        after = session.store.describe_table(self._table)
        if (after.table_id, after.schema_version) != (about.table_id, about.schema_version):
            raise UnavailableError(f"table {self._table!r} is being altered; try again", 0.1)
        if row is not None:
            session.call.sent_rows += 1
            row = words.cells.to_json(row)
        answer = {"table_id": about.table_id, "schema_version": about.schema_version, "row": row}
        answer = to_json(answer, inf_nan_mode="strings")
        if kept is not None and stamp is not None and after is about:
            kept.keep(stamp, message, answer)
        return answer


class _RowWords:
    """How keys and rows of one version of a table are written in JSON."""

    def __init__(self, about: TableDescription) -> None:
        self.about = about
        self.cells = RowCells(about.columns)
        key = enumerate(about.columns[: len(about.primary_key)])
        self._readers = [(place, column) for place, column in key if not is_plain(column)]

    def key(self, key: list[Any]) -> list[Any]:
        """Return the values of a key. What is wrong with plain ones, the store tells.

        Raises:
            InvalidArgumentError: there is not a value for each key column, or one that is not plain is wrong.
        """
        values = key_values(tuple(key), self.about)
        for place, column in self._readers:
            values[place] = from_json(key[place], column.logical, f"key column {column.name!r}:")
        return values


def _asked(first: bytes) -> tuple[SessionRequest, str]:
    """Return the request of a first line, and its kind. Raises InvalidArgumentError."""
    asked = read_json(SessionRequest, first, "the request")
    kinds = [kind for kind in ("get", "get_many", "scan", "write") if getattr(asked, kind) is not None]
    if len(kinds) != 1:
        raise InvalidArgumentError("a request must have exactly one of get, get_many, scan and write")
    return asked, kinds[0]


def _told(result: WriteResult) -> bytes:
    is_whole = result.applied == result.rows and not (result.ignored or result.truncated or result.replaced)
    if is_whole and result.durability is Durability.FSYNC:
        return b'{"timestamp":%d,"rows":%d,"applied":%d}' % (result.timestamp, result.rows, result.applied)
    return result.model_dump_json(exclude_defaults=True).encode()


def _schema(text: str | None) -> pa.Schema:
    """Return the schema in a first line.

    Raises:
        InvalidArgumentError: it is none, or has dictionaries, which come in messages of their own.
    """
    if text is None:
        raise InvalidArgumentError("get_many and write need an arrow_schema: an Arrow schema message in Base64")
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
        _ = schema.names  # raises a ValueError unless they are UTF-8
    except (pa.ArrowException, OSError, binascii.Error, ValueError) as error:
        raise InvalidArgumentError(f"arrow_schema is not an Arrow schema in Base64: {error}") from None
    if any(pa.types.is_dictionary(field.type) for field in schema):
        raise InvalidArgumentError("a session takes no dictionary columns")
    return schema
