"""SqlFront: answers the calls of Flight SQL."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl

from ...clients.sql.change.conflicts import Turns
from ...schemas.errors import InvalidArgumentError, StoreError, UnavailableError
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
from .folder import new_folder
from .handles import (
    PREPARED_BYTES_MAX,
    PREPARED_MAX,
    TRANSACTION_SECONDS,
    TRANSACTIONS_MAX,
    Handles,
    OpenTransaction,
    Prepared,
)
from .headers import MIDDLEWARE, SqlHeaders, of_call
from .ingest import ingest
from .places import SqlPlaces
from .private_port import PrivatePort
from .received_parameters import received_parameters
from .statement_child import ChildHandle

if TYPE_CHECKING:
    from ..server import FlightServer

ACTIONS = frozenset(
    {
        *("CreatePreparedStatement", "ClosePreparedStatement", "CreatePreparedSubstraitPlan"),
        *("BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint"),
        *("CancelQuery", "CancelFlightInfo"),
    }
)
_PAUSE_SECONDS = 10.0
"""How long a stream is silent at most: proxies end those that are silent for longer."""
_SHORT_SECONDS = 0.02
_COUNT = pa.schema([pa.field("rows", pa.int64())])
"""What a change answers that is sent as a query."""


class SqlFront:
    """Flight SQL of one server: its statements, and what clients hold. Thread safe."""

    def __init__(self, server: FlightServer) -> None:
        """Start what runs statements. ``server`` need not listen yet."""
        self._server = server
        self._config = config = server.config
        self._folder = new_folder()
        self._prepared: Handles[Prepared] = Handles("prepared statement", PREPARED_MAX, PREPARED_BYTES_MAX)
        self._transactions: Handles[OpenTransaction] = Handles("transaction", TRANSACTIONS_MAX)
        self._turns = Turns()
        self._cancelled: set[bytes] = set()
        self._running: dict[bytes, str] = {}
        self._answers = SmallAnswers()
        self._port = PrivatePort(server, self._folder / "socket")
        self._places = SqlPlaces(
            self._start, config.sql_places, config.user_share, config.waiting_max, config.sql_timeout_seconds
        )
        self._places.start_one()
        self._stopped = threading.Event()
        threading.Thread(target=self._roll_back_idle, name="nyala-sql-transactions", daemon=True).start()

    def close(self) -> None:
        """End all statements."""
        self._stopped.set()
        self._places.close()
        self._port.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def middleware(self) -> dict[str, fl.ServerMiddlewareFactory]:
        """See SqlCalls."""
        return {MIDDLEWARE: SqlHeaders()}

    def owns_action(self, name: str) -> bool:
        """Whether an action is one of Flight SQL."""
        return name in ACTIONS

    # GetFlightInfo and GetSchema

    def info(self, descriptor: fl.FlightDescriptor, call: Call) -> fl.FlightInfo:
        """Answer GetFlightInfo: the schema of a statement's rows, and the ticket that runs it."""
        body = self._sized(descriptor.command)
        name, message = messages.read(body)
        schema, ticket = self._planned(name, message, body, call)
        return fl.FlightInfo(schema, descriptor, [fl.FlightEndpoint(ticket, [])], -1, -1)

    def schema(self, descriptor: fl.FlightDescriptor, call: Call) -> pa.Schema:
        """Answer GetSchema."""
        body = self._sized(descriptor.command)
        return self._planned(*messages.read(body), body, call)[0]

    def _planned(self, name: str, message: Any, body: bytes, call: Call) -> tuple[pa.Schema, bytes]:
        if name == "CommandStatementQuery":
            transaction = _optional(message, "transaction_id")
            number = _fresh()
            handle = {"q": message.query, "n": number} | ({"t": transaction.hex()} if transaction else {})
            ticket = messages.wrapped("TicketStatementQuery", statement_handle=json.dumps(handle).encode())
            if not transaction and (query := alone(self._store(call), message.query)) is not None:
                return query.planned.schema, ticket
            described = self._described(message.query, transaction, call)
            if described.rows is not None:
                self._answers.add(number, _user(call), described.rows)
            return described.schema or _COUNT, ticket
        if name == "CommandPreparedStatementQuery":
            prepared = self._prepared.get(message.prepared_statement_handle, _user(call))
            if prepared.schema is None:
                return _COUNT, body
            if prepared.varies and prepared.parameters:
                prepared.schema = self._described(prepared.text, prepared.transaction, call, prepared.parameters).schema
            return prepared.schema, body
        schema = metadata.schema_of(name, message)
        if schema is None:
            raise InvalidArgumentError(f"GetFlightInfo does not take Flight SQL's {name}")
        return schema, body

    def _described(
        self, text: str, transaction: bytes | None, call: Call, parameters: bytes | None = None
    ) -> StatementDescription:
        """Return what a child says of a statement."""
        schema, batches, end = None, [], {}
        for frame in self._frames(call, "describe", text, transaction, parameters):
            if frame is None:
                continue
            if frame.kind is FrameKind.SCHEMA:
                schema = pa.ipc.read_schema(frame.body)
            elif frame.kind is FrameKind.BATCH:
                batches.append(pa.ipc.read_record_batch(frame.body, schema))
            else:
                end = frame.json()
        rows = pa.Table.from_batches(batches, schema) if end.get("is_whole") else None
        fields = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(end["parameters"])))
        return StatementDescription(schema, fields, end["varies"], rows)

    def _store(self, call: Call) -> StoreService:
        """Return the store as the caller may use it."""
        return self._server.store_of(call.identity)

    # DoGet

    def stream(self, context: fl.ServerCallContext, ticket: bytes) -> fl.FlightDataStream:
        """Answer DoGet: the rows of a statement, or of metadata."""
        body = self._sized(ticket)
        call = self._server.calls.begin(context, "do_get", Kind.SCAN)
        try:
            with call.working():
                name, message = messages.read(body)
                is_statement = name in ("TicketStatementQuery", "CommandPreparedStatementQuery")
                answer = (self._statement if is_statement else self._metadata)(name, message, call)
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

    def _statement(self, name: str, message: Any, call: Call) -> fl.FlightDataStream | ScanStream:
        parameters = None
        if name == "TicketStatementQuery":
            handle = message.statement_handle
            fields = _ticket(handle)
            text, transaction = fields["q"], bytes.fromhex(fields["t"]) if "t" in fields else None
        else:
            handle = message.prepared_statement_handle
            prepared = self._prepared.get(handle, _user(call))
            text, transaction, parameters = prepared.text, prepared.transaction, prepared.parameters
            if prepared.schema is not None and transaction not in self._transactions:
                transaction = None  # it has ended: the query reads what is there now
            fields = {}
        if (rows := self._answers.pop(fields.get("n"), _user(call))) is not None:
            return ShortStream(rows, call)
        if not transaction and (stream := self._alone(text, parameters, call)) is not None:
            return stream
        pause = [_SHORT_SECONDS]
        frames = self._frames(call, "run", text, transaction, parameters, lambda: pause[0], handle)
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
        pause[0] = _PAUSE_SECONDS
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
            self._answer_count(writer, self._changed(message.query, transaction, None, call), call)
        elif name == "CommandPreparedStatementUpdate":
            prepared = self._prepared.get(message.prepared_statement_handle, _user(call))
            parameters = received_parameters(reader, self._config, call)
            self._answer_count(writer, self._changed(prepared.text, prepared.transaction, parameters, call), call)
        elif name == "CommandPreparedStatementQuery":
            prepared = self._prepared.get(message.prepared_statement_handle, _user(call))
            prepared.parameters = received_parameters(reader, self._config, call)
            handle = message.prepared_statement_handle
            send_answer(writer, messages.plain("DoPutPreparedStatementResult", prepared_statement_handle=handle))
        elif name == "CommandStatementIngest":
            store = self._store(call)
            batches = (item.batch for item in received(reader, self._config, call))
            rows = ingest(store, message, reader.schema, batches, of_call(context), context.is_cancelled)
            self._answer_count(writer, rows, call)
        else:
            raise InvalidArgumentError(f"DoPut does not take Flight SQL's {name}")

    def _answer_count(self, writer: fl.FlightMetadataWriter, count: int, call: Call) -> None:
        call.wrote(max(count, 0))
        send_answer(writer, messages.plain("DoPutUpdateResult", record_count=count))

    def _changed(self, text: str, transaction: bytes | None, parameters: bytes | None, call: Call) -> int:
        count = -1
        for frame in self._frames(call, "run", text, transaction, parameters):
            if frame is not None and frame.kind is FrameKind.END:
                count = frame.json().get("changed", -1)
        return count

    # DoAction

    def act(self, action: fl.Action, call: Call) -> list[fl.Result]:
        """Answer DoAction."""
        name, body = action.type, self._sized(action.body.to_pybytes())
        if name == "CancelFlightInfo":
            return [fl.Result(self._cancel_info(body))]
        if name == "CancelQuery":
            _, message = messages.read(body)
            status = self._cancel(fl.FlightInfo.deserialize(message.info))
            return [fl.Result(messages.wrapped("ActionCancelQueryResult", result=status))]
        _, message = messages.read(body)
        if name == "CreatePreparedStatement":
            return [fl.Result(self._prepare(message, call))]
        if name == "ClosePreparedStatement":
            with suppress(InvalidArgumentError):
                self._prepared.pop(message.prepared_statement_handle, _user(call))
            return []
        if name == "BeginTransaction":
            handle = self._begin(call)
            return [fl.Result(messages.wrapped("ActionBeginTransactionResult", transaction_id=handle))]
        if name == "EndTransaction":
            self._end_transaction(message.transaction_id, message.action == 1, call)
            return []
        raise InvalidArgumentError(f"this server has no {name}")

    def _prepare(self, message: Any, call: Call) -> bytes:
        transaction = _optional(message, "transaction_id")
        query = None if transaction else alone(self._store(call), message.query)
        if query is not None:
            described = StatementDescription(query.planned.schema, query.parameters)
        else:
            described = self._described(message.query, transaction, call)
        prepared = Prepared(_user(call), message.query, described.schema, None, transaction, described.varies)
        return messages.wrapped(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=self._prepared.add(prepared),
            dataset_schema=described.schema.serialize().to_pybytes() if described.schema is not None else b"",
            parameter_schema=described.parameters.serialize().to_pybytes(),
            is_update=described.schema is None,
        )

    def _begin(self, call: Call) -> bytes:
        user = _user(call)
        with self._places.taken(user, call.check) as child:
            handle = self._transactions.add(OpenTransaction(user, call.identity, child))
            child.transactions += 1
            try:
                self._run(child, call.identity, user, {"op": "begin", "session": handle.hex()}, call.check)
            except BaseException:
                self._transactions.pop(handle, user)
                child.transactions -= 1
                raise
        return handle

    def _end_transaction(self, handle: bytes, is_commit: bool, call: Call) -> None:
        self._transactions.get(handle, _user(call))
        self._end_held(handle, is_commit, _user(call), call.check)

    def _end_held(self, handle: bytes, is_commit: bool, user: str, check: Callable[[], None]) -> None:
        held = self._transactions.pop(handle, user)
        held.child.transactions -= 1
        with self._places.taken(user, check, of_transaction=held.child) as child:
            request = {"op": "end", "session": handle.hex(), "commit": is_commit}
            self._run(child, held.caller, user, request, check)

    def _run(
        self, child: ChildHandle, caller: Any, user: str, request: dict[str, Any], check: Callable[[], None]
    ) -> None:
        token = child.token_of(user)
        with self._port.tokens.lent(token, caller):
            seconds = self._config.sql_timeout_seconds
            for _ in child.frames({**request, "token": token}, None, check, seconds, lambda: _PAUSE_SECONDS):
                pass

    def _roll_back_idle(self) -> None:
        while not self._stopped.wait(TRANSACTION_SECONDS / 20):
            before = time.monotonic() - TRANSACTION_SECONDS
            for handle, held in self._transactions.items():
                if held.used < before:
                    with suppress(StoreError):
                        self._end_held(handle, False, held.user, lambda: None)

    def _cancel_info(self, body: bytes) -> bytes:
        message = messages.read_plain("CancelFlightInfoRequest", body)
        return messages.plain("CancelFlightInfoResult", status=self._cancel(fl.FlightInfo.deserialize(message.info)))

    def _cancel(self, info: fl.FlightInfo) -> int:
        """End the statement whose ticket is in an info. Return Flight's word for the outcome."""
        for endpoint in info.endpoints:
            body = endpoint.ticket.ticket
            if not messages.is_sql(body):
                continue
            _, message = messages.read(body)
            handle = getattr(message, "statement_handle", b"") or getattr(message, "prepared_statement_handle", b"")
            if handle in self._running:
                self._cancelled.add(handle)
                return 1
        return 3

    # statements

    def _frames(
        self,
        call: Call,
        op: str,
        text: str,
        transaction: bytes | None,
        parameters: bytes | None,
        pause_seconds: Callable[[], float] = lambda: _PAUSE_SECONDS,
        handle: bytes = b"",
    ) -> Iterator[ChannelFrame | None]:
        """Run a statement in a child and yield the frames of its answer."""
        user = _user(call)
        held = self._transactions.get(transaction, user) if transaction else None
        request = {"op": op, "text": text} | ({"session": transaction.hex()} if transaction else {})

        def check() -> None:
            call.check()
            if handle in self._cancelled:
                raise UnavailableError("the statement was cancelled")

        if handle:
            self._running[handle] = user
        try:
            with self._places.taken(user, check, text, held.child if held else None) as child:
                token = child.token_of(user)
                if held:
                    held.used = time.monotonic()
                with self._port.tokens.lent(token, call.identity):
                    seconds = self._config.sql_timeout_seconds
                    yield from child.frames({**request, "token": token}, parameters, check, seconds, pause_seconds)
        finally:
            self._running.pop(handle, None)
            self._cancelled.discard(handle)

    def _start(self) -> ChildHandle:
        config = self._config
        spills = Path(tempfile.mkdtemp(prefix="spills-", dir=self._folder))
        options = {
            "location": self._port.location,
            "limits": {
                "memory_bytes": config.sql_memory_bytes,
                "leaf_bytes": config.sql_leaf_bytes,
                "spill_folder": str(spills),
            },
            "config": config.model_dump(exclude={"private_paths"}),
        }
        return ChildHandle(
            options, config.sql_memory_bytes + 2 * config.sql_leaf_bytes, spills, config.sql_spill_bytes, self._turns
        )

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


def _user(call: Call) -> str:
    return call.user or ""


def _end(frames: Iterator[ChannelFrame | None], call: Call) -> None:
    try:
        frames.close()  # pyright: ignore[reportAttributeAccessIssue]
    finally:
        call.close()


_NUMBERS = iter(range(1 << 62))


def _fresh() -> int:
    return next(_NUMBERS)
