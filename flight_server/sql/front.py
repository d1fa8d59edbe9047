"""SqlFront: answers the calls of Flight SQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl

from ...clients.sql.control import control_in
from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.service import ScanStream, StoreService
from ...schemas.protocol.verb import Kind
from ...schemas.rows.batches import no_rows
from ..admission.admission import sized
from ..errors.client_gone import send_answer
from ..errors.errors import Guarded
from ..handlers.get import sent
from ..handlers.short_scan import BYTES_MAX, ShortStream
from ..requests.calls import Call
from ..requests.received_batch import received
from . import messages, metadata
from .alone import alone
from .answers import SmallAnswers, StatementDescription
from .channel import ChannelFrame, FrameKind
from .handles import PREPARED_BYTES_MAX, PREPARED_MAX, Handles, Prepared
from .headers import MIDDLEWARE, SqlHeaders, cookie_of, of_call
from .ingest import ingest
from .received_parameters import received_parameters
from .sessions import SqlSessions
from .statements import PAUSE_SECONDS, SqlStatements, owner_of

if TYPE_CHECKING:
    from ..server import FlightServer

ACTIONS = frozenset(
    {
        *("CreatePreparedStatement", "ClosePreparedStatement", "CreatePreparedSubstraitPlan"),
        *("BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint"),
        *("CancelQuery", "CancelFlightInfo"),
        *("SetSessionOptions", "GetSessionOptions", "CloseSession"),
    }
)
_SHORT_SECONDS = 0.02
_COUNT = pa.schema([pa.field("rows", pa.int64())])
"""What a change answers that is sent as a query."""


class SqlFront:
    """Flight SQL of one server: its statements, and what clients hold. Thread safe."""

    def __init__(self, server: FlightServer) -> None:
        """Start what runs statements. ``server`` need not listen yet."""
        self._server = server
        self._config = server.config
        self._prepared: Handles[Prepared] = Handles("prepared statement", PREPARED_MAX, PREPARED_BYTES_MAX)
        self._answers = SmallAnswers()
        self._statements = SqlStatements(server)
        self._sessions = SqlSessions(self._statements)

    def close(self) -> None:
        """End all statements."""
        self._statements.close()

    @property
    def middleware(self) -> dict[str, fl.ServerMiddlewareFactory]:
        """See SqlCalls."""
        return {MIDDLEWARE: SqlHeaders()}

    def owns_action(self, name: str) -> bool:
        """Whether an action is one of Flight SQL."""
        return name in ACTIONS

    # GetFlightInfo and GetSchema

    def info(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor, call: Call) -> fl.FlightInfo:
        """Answer GetFlightInfo: the schema of a statement's rows, and the ticket that runs it."""
        schema, ticket = self._planned(context, self._sized(descriptor.command), call)
        return fl.FlightInfo(schema, descriptor, [fl.FlightEndpoint(ticket, [])], -1, -1)

    def schema(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor, call: Call) -> pa.Schema:
        """Answer GetSchema."""
        return self._planned(context, self._sized(descriptor.command), call)[0]

    def _planned(self, context: fl.ServerCallContext, body: bytes, call: Call) -> tuple[pa.Schema, bytes]:
        name, message = messages.read(body)
        if name == "CommandStatementQuery":
            transaction = _optional(message, "transaction_id")
            number = _fresh()
            handle = {"q": message.query, "n": number} | ({"t": transaction.hex()} if transaction else {})
            ticket = messages.wrapped("TicketStatementQuery", statement_handle=json.dumps(handle).encode())
            if control_in(message.query) is not None:
                return _COUNT, ticket
            transaction = transaction or self._sessions.transaction(cookie_of(context), call)
            if not transaction and (query := alone(self._store(call), message.query)) is not None:
                return query.planned.schema, ticket
            described = self._described(message.query, transaction, call)
            if described.rows is not None:
                self._answers.add(number, owner_of(call), described.rows)
            return described.schema or _COUNT, ticket
        if name == "CommandPreparedStatementQuery":
            prepared = self._prepared.get(message.prepared_statement_handle, owner_of(call))
            if prepared.schema is None:
                return _COUNT, body
            if prepared.varies and prepared.parameters:
                transaction = prepared.transaction or self._sessions.transaction(cookie_of(context), call)
                described = self._statements.described(prepared.text, transaction, call, prepared.parameters)
                prepared.schema = described.schema
            return prepared.schema or _COUNT, body
        schema = metadata.schema_of(name, message)
        if schema is None:
            raise InvalidArgumentError(f"GetFlightInfo does not take Flight SQL's {name}")
        return schema, body

    def _described(self, text: str, transaction: bytes | None, call: Call) -> StatementDescription:
        if not transaction and (described := self._answers.constant(text)) is not None:
            return described
        described = self._statements.described(text, transaction, call)
        self._answers.learn(text, described)
        return described

    def _store(self, call: Call) -> StoreService:
        """Return the store as the caller may use it."""
        return self._server.shared_store_of(call.identity)

    # DoGet

    def stream(self, context: fl.ServerCallContext, ticket: bytes) -> fl.FlightDataStream:
        """Answer DoGet: the rows of a statement, or of metadata."""
        body = self._sized(ticket)
        call = self._server.calls.begin(context, "do_get", Kind.SCAN)
        try:
            with call.working():
                name, message = messages.read(body)
                is_statement = name in ("TicketStatementQuery", "CommandPreparedStatementQuery")
                answer = (
                    self._statement(context, name, message, call)
                    if is_statement
                    else self._metadata(name, message, call)
                )
            return (
                sent(answer, call, self._config, self._server.translator) if isinstance(answer, ScanStream) else answer
            )
        except BaseException:
            call.close()
            raise

    def _metadata(self, name: str, message: Any, call: Call) -> fl.FlightDataStream:
        table = metadata.answer(self._store(call), name, message)
        if table is None:
            raise InvalidArgumentError(f"DoGet does not take Flight SQL's {name}")
        return ShortStream(table, call)

    def _statement(
        self, context: fl.ServerCallContext, name: str, message: Any, call: Call
    ) -> fl.FlightDataStream | ScanStream:
        parameters = None
        if name == "TicketStatementQuery":
            handle = message.statement_handle
            fields = _ticket(handle)
            text, transaction = fields["q"], bytes.fromhex(fields["t"]) if "t" in fields else None
        else:
            handle = message.prepared_statement_handle
            prepared = self._prepared.get(handle, owner_of(call))
            text, transaction, parameters = prepared.text, prepared.transaction, prepared.parameters
            if prepared.schema is not None and not self._statements.is_open(transaction):
                transaction = None  # it has ended: the query reads what is there now
            fields = {}
        cookie = cookie_of(context)
        if self._sessions.control(text, transaction, cookie, call):
            return ShortStream(pa.table({"rows": [0]}, schema=_COUNT), call)
        if (rows := self._answers.pop(fields.get("n"), owner_of(call))) is not None:
            return ShortStream(rows, call)
        transaction = transaction or self._sessions.transaction(cookie, call)
        if not transaction:
            described = None if parameters is not None else self._answers.constant(text)
            if described is not None and described.rows is not None:
                return ShortStream(described.rows, call)
            if (stream := self._alone(text, parameters, call)) is not None:
                return stream
        return self._of_child(text, transaction, parameters, handle, call)

    def _of_child(
        self, text: str, transaction: bytes | None, parameters: bytes | None, handle: bytes, call: Call
    ) -> fl.FlightDataStream:
        """Run a statement in a child; return its rows at once if they are few and come at once."""
        pause = [_SHORT_SECONDS]
        frames = self._statements.frames(call, "run", text, transaction, parameters, lambda: pause[0], handle)
        schema, batches, is_whole = _COUNT, [], False
        for frame in frames:
            if frame is None:
                if batches:
                    break
            elif frame.kind is FrameKind.SCHEMA:
                schema = pa.ipc.read_schema(frame.body)
            elif frame.kind is FrameKind.BATCH:
                batches.append(pa.ipc.read_record_batch(frame.body, schema))
                if sum(batch.nbytes for batch in batches) > BYTES_MAX:
                    break
            else:
                is_whole = True
                if "changed" in (end := frame.json()):
                    batches = [pa.record_batch([pa.array([end["changed"]], pa.int64())], schema=_COUNT)]
        if is_whole and schema.names:
            return ShortStream(pa.Table.from_batches(batches, schema).combine_chunks(), call)
        pause[0] = PAUSE_SECONDS
        rows = self._sent(frames, schema, batches, call)
        call.waits_for_client()
        guarded = Guarded(rows, self._server.translator, "do_get", partial(_end, frames, call))
        return fl.GeneratorStream(schema, guarded)

    def _alone(self, text: str, parameters: bytes | None, call: Call) -> ScanStream | None:
        """Begin a query that the store answers alone. None: it is for a child."""
        store = self._store(call)
        rows = None if parameters is None else pa.ipc.open_stream(parameters).read_all()
        query = alone(store, text, rows, is_run=True)
        if query is None:
            return None
        call.table = query.table.name
        return query.stream(store, call.step)

    def _sent(
        self, frames: Iterator[ChannelFrame | None], schema: pa.Schema, first: list[pa.RecordBatch], call: Call
    ) -> Iterator[pa.RecordBatch]:
        waiting = first[::-1]
        nothing = no_rows(schema)
        while True:
            with call.working():
                if waiting:
                    batch = waiting.pop()
                else:
                    frame = next(frames, None) if frames is not None else None
                    if frame is None:
                        batch = nothing
                    elif frame.kind is FrameKind.BATCH:
                        batch = pa.ipc.read_record_batch(frame.body, schema)
                    else:
                        return
            call.sent(batch.nbytes, batch.num_rows)
            with call.with_client():
                yield batch

    # DoPut

    def put(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.FlightMetadataWriter,
        call: Call,
    ) -> None:
        """Answer DoPut: run a change, bind parameters, or take rows for a table."""
        name, message = messages.read(self._sized(descriptor.command))
        if name == "CommandStatementUpdate":
            transaction = _optional(message, "transaction_id")
            self._answer_count(writer, self._changed(context, message.query, transaction, None, call), call)
        elif name == "CommandPreparedStatementUpdate":
            prepared = self._prepared.get(message.prepared_statement_handle, owner_of(call))
            parameters = received_parameters(reader, self._config, call)
            count = self._changed(context, prepared.text, prepared.transaction, parameters, call)
            self._answer_count(writer, count, call)
        elif name == "CommandPreparedStatementQuery":
            handle = message.prepared_statement_handle
            prepared = self._prepared.get(handle, owner_of(call))
            bound = replace(prepared, parameters=received_parameters(reader, self._config, call))
            self._prepared.replace(handle, bound)
            send_answer(writer, messages.plain("DoPutPreparedStatementResult", prepared_statement_handle=handle))
        elif name == "CommandStatementIngest":
            if self._sessions.transaction(cookie_of(context), call):
                raise InvalidArgumentError("an ingest is a separate commit: COMMIT or ROLLBACK the transaction first")
            store = self._store(call)
            batches = (item.batch for item in received(reader, self._config, call))
            rows = ingest(store, message, reader.schema, batches, of_call(context), context.is_cancelled)
            self._answer_count(writer, rows, call)
        else:
            raise InvalidArgumentError(f"DoPut does not take Flight SQL's {name}")

    def _answer_count(self, writer: fl.FlightMetadataWriter, count: int, call: Call) -> None:
        call.wrote(max(count, 0))
        send_answer(writer, messages.plain("DoPutUpdateResult", record_count=count))

    def _changed(
        self, context: fl.ServerCallContext, text: str, transaction: bytes | None, parameters: bytes | None, call: Call
    ) -> int:
        cookie = cookie_of(context)
        if self._sessions.control(text, transaction, cookie, call):
            return 0
        transaction = transaction or self._sessions.transaction(cookie, call)
        return self._statements.changed(text, transaction, parameters, call)

    # DoAction

    def act(self, context: fl.ServerCallContext, action: fl.Action, call: Call) -> list[fl.Result]:
        """Answer DoAction."""
        name, body = action.type, self._sized(action.body.to_pybytes())
        if name == "CancelFlightInfo":
            status = self._cancel(messages.read_plain("CancelFlightInfoRequest", body).info, call)
            return [fl.Result(messages.plain("CancelFlightInfoResult", status=status))]
        if name == "SetSessionOptions":
            return [fl.Result(self._sessions.set_options(body))]
        if name == "GetSessionOptions":
            return [fl.Result(self._sessions.options())]
        if name == "CloseSession":
            return [fl.Result(self._sessions.close(cookie_of(context), call))]
        if name == "CancelQuery":
            _, message = messages.read(body)
            return [fl.Result(messages.wrapped("ActionCancelQueryResult", result=self._cancel(message.info, call)))]
        _, message = messages.read(body)
        if name == "CreatePreparedStatement":
            return [fl.Result(self._prepare(context, message, call))]
        if name == "ClosePreparedStatement":
            with suppress(InvalidArgumentError):
                self._prepared.pop(message.prepared_statement_handle, owner_of(call))
            return []
        if name == "BeginTransaction":
            handle = self._statements.begin(call)
            return [fl.Result(messages.wrapped("ActionBeginTransactionResult", transaction_id=handle))]
        if name == "EndTransaction":
            self._statements.end(message.transaction_id, message.action == 1, call)
            return []
        raise InvalidArgumentError(f"this server does not take Flight SQL's {name}")

    def _prepare(self, context: fl.ServerCallContext, message: Any, call: Call) -> bytes:
        transaction = _optional(message, "transaction_id")
        within = transaction or self._sessions.transaction(cookie_of(context), call)
        query = None if within else alone(self._store(call), message.query)
        if query is not None:
            described = StatementDescription(query.planned.schema, query.parameters)
        elif control_in(message.query) is not None:
            described = StatementDescription(None, pa.schema([]))
        else:
            described = self._described(message.query, within, call)
        prepared = Prepared(owner_of(call), message.query, described.schema, None, transaction, described.varies)
        return messages.wrapped(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=self._prepared.add(prepared),
            dataset_schema=described.schema.serialize().to_pybytes() if described.schema is not None else b"",
            parameter_schema=described.parameters.serialize().to_pybytes(),
            is_update=described.schema is None,
        )

    def _cancel(self, info: bytes, call: Call) -> int:
        """End the statement whose ticket is in an info. Return Flight's word for the outcome."""
        for endpoint in fl.FlightInfo.deserialize(info).endpoints:
            body = endpoint.ticket.ticket
            if not messages.is_sql(body):
                continue
            _, message = messages.read(body)
            handle = getattr(message, "statement_handle", b"") or getattr(message, "prepared_statement_handle", b"")
            if self._statements.cancel(handle, call):
                return 1
        return 3

    def _sized(self, body: bytes | None) -> bytes:
        return sized(body or b"", "the request", self._config.scan_bytes_max)


def _ticket(handle: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(handle)
        if isinstance(fields["q"], str) and isinstance(fields.get("t", ""), str):
            bytes.fromhex(fields.get("t", ""))
            return fields
    except (ValueError, KeyError, TypeError):
        pass
    raise InvalidArgumentError("the ticket is not one of this server's: call GetFlightInfo first")


def _optional(message: Any, field: str) -> bytes | None:
    return getattr(message, field) or None


def _end(frames: Iterator[ChannelFrame | None], call: Call) -> None:
    try:
        frames.close()  # pyright: ignore[reportAttributeAccessIssue]
    finally:
        call.close()


_NUMBERS = iter(range(1 << 62))


def _fresh() -> int:
    return next(_NUMBERS)
