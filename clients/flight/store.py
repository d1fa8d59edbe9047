"""FlightStore: a store behind Arrow Flight, with the interface of every store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.flight as fl
from pydantic import BaseModel

from ...schemas.cells.timestamp import parse_moment
from ...schemas.errors import ConflictError, InvalidArgumentError, NotFoundError, StoreError, UnavailableError
from ...schemas.protocol.server_verbs import ServerVerbs
from ...schemas.protocol.service import KeyReader, RowWriter, ScanStream
from ...schemas.protocol.verb import Verb
from ...schemas.protocol.verbs import Verbs
from ...schemas.rows.batches import begun, no_rows
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.statement import Statement
from ...schemas.rows.transaction import StagedBatch, StageResult, TransactionCommit, TransactionResult
from ...schemas.rows.write import CommitMode, WriteCommand, WriteResult
from ...schemas.store.description import Health, TableDescription
from ...schemas.store.locations import DEFAULT_LOCATION, check_servers, joined, locations_of
from ...schemas.store.moving import MoveProgress
from ...schemas.store.whereabouts import Whereabouts
from .credentials import Credentials
from .deadline import answered_within, seconds_left
from .errors import as_store_errors
from .heartbeat import LOST_AFTER
from .held_batches import HeldBatches
from .holder_client import Client, HolderClient, Noted
from .numbered import NumberedPut, Writer, Writers
from .point_reads import PointReads
from .put_stream import PutStream
from .replicas import Replicas
from .scan_parts import ScanPart, ScanParts
from .scan_reader import ScanReader
from .server_wait import ServerWait
from .sessions import Sessions
from .small_requests import SmallRequests
from .staging_put import StagingPut

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
Given = str | Sequence[str]
"""One location, or several: as text with commas, or as a list."""

_PLANS_MAX = 8
"""Attempts to plan a scan of a table that is altered before each reading."""
_RELEASE_SECONDS = 5.0
"""The most that the end of a scan waits for a server that may be down: what it keeps expires."""
_RECONNECT = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]
"""While a server is down, try to reconnect every second. By default gRPC's pauses grow to two minutes, in which all
calls fail at once: a write that is retried for some seconds would miss a server that is long back."""
# Calls that fail at once do no network work, so a try to reconnect goes on only when gRPC looks after it by itself:
# every 5 s by default, when each try has long timed out. gRPC reads this once, before the first connection.
os.environ.setdefault("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "200")


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of a write over Flight that the server has answered already: a PendingResult."""

    answer: WriteResult

    def result(self) -> WriteResult:
        """See PendingResult."""
        return self.answer


class FlightStore(Verbs, ServerVerbs, KeyReader, RowWriter):
    """The Flight client of one store: of its server, or of the one among several processes that has it. Thread safe.

    See ``schemas.service.StoreService``.

    Create the first one after forking, not before: gRPC does not survive a fork.
    """

    def __init__(
        self,
        url: Given,
        retries: bool = True,
        patient: bool = False,
        credentials: Credentials | None = None,
        noted: Noted | None = None,
        name: str | None = None,
    ) -> None:
        """Connect, with these credentials, or the environment's, to a server, or to that one of several locations that
        has the store: see ``schemas.locations``. With ``retries``, wait for a server that goes down, or for the next
        process to have the store, and repeat what was not answered: a write is applied once, a scan resumes where it
        was; without, one location given is that of the process that is meant, and asked alone. With
        ``patient``, wait for it now as well. ``noted`` returns more locations, for when nobody at those that are known
        has the store; then ``name`` is that of the store.

        Raises:
            UnavailableError: no server answers.
            InvalidArgumentError: ``url`` is invalid, or the credentials are, or another store is there.
            UnauthenticatedError: the server does not accept them.
        """
        given = locations_of(url)
        check_servers(given)
        self.credentials = Credentials.of() if credentials is None else credentials
        self._retries = retries
        self._waits_for_gone = True
        self._writers = Writers()
        try:
            may_follow = retries or len(given) > 1 or noted is not None
            options = [*_RECONNECT, *LOST_AFTER] if may_follow else _RECONNECT
            self._client = HolderClient(
                given, lambda location: self.credentials.connect(location, options), noted, name
            )
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise InvalidArgumentError(
                f"invalid URL {joined(given)!r}, expected one such as {DEFAULT_LOCATION}: {error}; "
                "use nyala.open for a directory, connect(placement=...) for several servers"
            ) from None
        self._follower = self._client if retries or not self._client.is_alone else None
        self._replicas = Replicas(self._client)
        self._point_reads = PointReads(self._client)
        self._sessions = Sessions(self._client)
        self._small = SmallRequests(self._sessions, self.describe_table)
        try:
            self._patiently(self._begin) if patient else self._begin()
        except StoreError:
            self._client.close()  # it would try to connect for ever
            raise

    @property
    def url(self) -> str:
        """The locations of all processes that are known, as one URL."""
        return joined(self._client.locations)

    def _begin(self) -> None:
        """Find out who has the store. Raises UnavailableError: nobody says so."""
        if self._client.is_alone:
            about = self.health()
            if about.state != "standby" or not self._follower:
                self._client.check(about)
                return
        self._client.follow()

    def _checked(self) -> Health:
        """Return the health of the server; what was sent before may be sent again only to the same store."""
        return self._client.confirm(seconds_left())

    def holder_health(self) -> Health:
        """Return the health of the process that has the store, waiting for it as reads do. ``health`` tells at once of
        the process that is asked now; one that stands by does not say with which servers the store shares tables."""
        return self._patiently(self._holder_health)

    def _holder_health(self) -> Health:
        found = self._checked()
        if found.state == "standby" and self._follower:
            raise UnavailableError(
                f"{self._client.location} is a standby of the store, and does not have it", locations=[]
            )
        return found

    def processes(self) -> dict[str, Whereabouts | StoreError]:
        """Ask all processes that are known to be able to have the store; return what each says of itself, or its error,
        by location."""
        return self._client.told()

    def at_once(self) -> FlightStore:
        """Return a copy whose reads do not wait for a server that is down. Close only the original."""
        other = copy(self)
        other._waits_for_gone = False
        return other

    # Rows

    def write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> WriteResult:
        """See StoreService."""
        if command.commit is not CommitMode.BATCH:
            command = command.model_copy(update={"commit": CommitMode.BATCH})
        with self._put(command, seq) as put:
            return put.write_only(command, batch)

    def begin_write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> Answered:
        """See StoreService. Waits for the answer: order needs a single stream, as in ``write_all``."""
        return Answered(self.write(command, batch, seq))

    def write_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None = None) -> WriteResult | None:
        """See RowWriter."""
        if command.commit is not CommitMode.BATCH or not self._small.takes_rows:
            return None  # the batch lane finds out, and repeats under one number whatever it finds
        if command.writer is not None:
            return None if seq is None else self._write_row(command, command.writer, row, seq)
        if not self._retries or seq is not None:
            return None
        writer = self._writers.borrow()
        assert writer.name is not None, "borrowed writers have names"
        found = self._write_row(command, writer.name, row, writer.next_number())
        self._writers.give_back(writer)
        return found

    def _write_row(self, command: WriteCommand, writer: str, row: Mapping[str, Any], number: int) -> WriteResult | None:
        wait: ServerWait | None = None
        while True:
            try:
                return self._small.write_row(command, writer, row, number)
            except UnavailableError as error:
                wait = wait or self._write_wait()
                wait.wait(error)

    def begin_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None = None) -> Answered | None:
        """See RowWriter. Waits for the answer, as ``begin_write`` does."""
        result = self.write_row(command, row, seq)
        return None if result is None else Answered(result)

    def write_all(self, command: WriteCommand, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteResult]:
        """See StoreService."""
        waiting = iter(batches)
        first, second = next(waiting, None), next(waiting, None)
        if first is None:
            return
        if second is None:
            yield self.write(command, first)
            return
        with self._put(command, None) as put:
            if command.commit is CommitMode.STREAM:
                yield put.write_staged(command, [first, second, *waiting])
            else:
                yield from put.write_all(command, chain([first, second], waiting))

    @contextmanager
    def _put(self, command: WriteCommand, seq: int | None) -> Iterator[NumberedPut]:
        """Lend a writer to one write; after a failure it is not used again."""
        if command.writer is not None and seq is not None:
            yield self._numbered(Writer(command.writer, [seq]))
        elif self._retries:
            writer = self._writers.borrow()
            yield self._numbered(writer)
            self._writers.give_back(writer)
        else:
            yield self._numbered(Writer(None, count()))

    def _numbered(self, writer: Writer) -> NumberedPut:
        return NumberedPut(self._open_put, writer, self._write_wait(), self._small.write)

    def _write_wait(self) -> ServerWait:
        name = f"the server at {self.url}"
        return ServerWait(lambda: self._holder_health().takes_writes, self._retries, name, follower=self._follower)

    def _read_wait(self) -> ServerWait:
        """Return the wait for reads: a server that rejects writes may still be read."""
        name, retries = f"the server at {self.url}", self._retries and seconds_left() is None
        return ServerWait(lambda: bool(self._checked()), retries, name, self._waits_for_gone, self._follower)

    def _patiently(self, ask: Callable[Asked, Answer], *of: Asked.args, **named: Asked.kwargs) -> Answer:
        """Return the answer to a repeatable request, waiting for a server that is down as reads do."""
        wait: ServerWait | None = None
        while True:
            try:
                return ask(*of, **named)
            except UnavailableError as error:
                wait = wait or self._read_wait()
                wait.wait(error)

    def _unless_applied(self, verb: Verb, ask: Callable[[], Answer]) -> Answer:
        """Return the answer to a request that must not be repeated, from the process that has the store: one that has
        not applies nothing."""
        wait: ServerWait | None = None
        while True:
            try:
                return ask()
            except UnavailableError as error:
                if error.answer_is_lost and verb.request is not None:  # else it asks what a server is
                    unknown = f"it is unknown whether {verb.name} was carried out: check, and repeat it if it was not"
                    lost = UnavailableError(f"{error.message}; {unknown}")
                    lost.answer_is_lost = True
                    raise lost from None
                if error.locations is None:
                    raise
                wait = wait or self._read_wait()
                wait.wait(error)

    def _open_put(self, command: WriteCommand, schema: pa.Schema) -> PutStream:
        return PutStream(self._client, command, schema)

    def stage(self, command: WriteCommand, batches: Iterable[StagedBatch]) -> StageResult:
        """See StoreService. All batches have the schema of the first."""
        coming = iter(batches)
        first = next(coming, None)
        schema = self._key_schema(command.table) if first is None else first.batch.schema
        put = StagingPut(self._open_put, self._write_wait())
        return put.stage(command, schema, chain([first] if first else [], coming))

    def _key_schema(self, table: str) -> pa.Schema:
        about = self.describe_table(table)
        return pa.schema([column.field for column in about.columns if column.name in about.primary_key])

    def commit_transaction(self, commit: TransactionCommit) -> TransactionResult:
        """See StoreService. Resent if the answer is lost; it is never applied twice."""
        wait = self._write_wait()
        while True:
            try:
                return super().commit_transaction(commit)
            except UnavailableError as error:
                wait.wait(error)

    def execute(self, statement: Statement) -> WriteResult:
        """See StoreService. Resent if the answer is lost, with a number that prevents a second execution."""
        wait = self._write_wait()
        writer = self._writers.borrow()
        if self._retries and statement.writer is None:
            statement = statement.model_copy(update={"writer": writer.name, "seq": writer.next_number()})
        while True:
            try:
                result = super().execute(statement)
            except UnavailableError as error:
                wait.wait(error)
            else:
                self._writers.give_back(writer)
                return result

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService. A short scan, an aggregate or a single tablet takes one call, without tickets. One that may
        be behind is read from a replica, if there is one."""
        is_part = spec.tablet is not None or spec.partition is not None or spec.here
        is_small = not is_part and spec.max_staleness is None and seconds_left() is None  # a session has no such end
        if is_small and (stream := self._patiently(self._small.scan, spec)) is not None:
            return stream
        if spec.aggregate is not None:
            return self._patiently(self._aggregated, spec)
        if is_part:
            reader = self._scan_reader(spec)
            batches = HeldBatches(reader.batches(), reader.close)
            return ScanStream(reader.open(), _pinned_to(spec), batches, rest=lambda: reader.rest)
        for attempt in range(_PLANS_MAX):
            parts = self.parts(spec)
            reader = self._scan_reader(_ticket(parts.parts[0])) if parts.parts else None
            release = partial(self._release, reader, parts)
            batches = HeldBatches(self._read(reader, parts), release, ends_by_itself=reader is not None)
            try:
                return ScanStream(reader.open() if reader else parts.schema, parts.snapshot, batches)
            except StoreError as error:
                batches.close()
                if attempt == _PLANS_MAX - 1 or not isinstance(error, ConflictError | NotFoundError):
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _aggregated(self, spec: ScanSpec) -> ScanStream:
        answer = self._replicas.ask(spec, lambda client: self._got(client, spec).read_all())
        return ScanStream(answer.schema, _pinned_to(spec), iter(answer.to_batches()))

    def _read(self, first: ScanReader | None, parts: ScanParts) -> Iterator[pa.RecordBatch]:
        if first is not None:
            yield from first.batches()
        for part in parts.parts[1:]:
            yield from self.read_part(part)

    def _release(self, first: ScanReader | None, parts: ScanParts) -> None:
        """Release what the server keeps for a scan. Raises StoreError."""
        if first is not None:
            first.close()
        if parts.lease is not None:
            with answered_within(_RELEASE_SECONDS):
                self.release_scan(parts.lease)

    def parts(self, spec: ScanSpec) -> ScanParts:
        """Return the parts of a scan, all pinned to one snapshot. Nothing is read yet."""
        return self._patiently(self._parts, spec)

    def _parts(self, spec: ScanSpec) -> ScanParts:
        wanted = fl.FlightDescriptor.for_command(_scan_json(spec))
        return ScanParts.of(self._replicas.ask(spec, lambda client: client.get_flight_info(wanted, *self._in_time())))

    def read_part(self, part: ScanPart) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a part, whichever server of the store planned it."""
        yield from self._scan_reader(_ticket(part)).batches()

    def _scan_reader(self, ticket: ScanSpec) -> ScanReader:
        def opened(rest: ScanSpec) -> fl.FlightStreamReader:
            return self._replicas.ask(rest, lambda client: _begun(self._got(client, rest)))

        return ScanReader(opened, self._read_wait(), ticket)

    def _got(self, client: Client | HolderClient, spec: ScanSpec) -> fl.FlightStreamReader:
        return client.do_get(fl.Ticket(_scan_json(spec)), *self._in_time())

    def _in_time(self) -> list[fl.FlightCallOptions]:
        """Return the options of a call for a caller who cannot wait; none for others."""
        left = seconds_left()
        return [] if left is None else [self._client.within(left)]

    def get(self, table: str, keys: pa.RecordBatch) -> pa.Table:
        """See StoreService."""
        return self._patiently(lambda: self._look_up(table, keys).to_table())

    def look_up(self, table: str, keys: pa.RecordBatch) -> ScanStream:
        """See StoreService. It waits for a server that is down before its first batch, and not between batches."""
        return self._patiently(self._look_up, table, keys)

    def _look_up(self, table: str, keys: pa.RecordBatch) -> ScanStream:
        found = self._small.rows(table, keys)
        if found is not None:
            return ScanStream(found.schema, None, iter(found.to_batches() or [no_rows(found.schema)]))
        schema, batches = begun(self._point_reads.look_up(table, keys))
        return ScanStream(schema, None, batches)

    def get_row(self, table: TableDescription, key: Sequence[Any]) -> dict[str, Any] | None:
        """See KeyReader."""
        answer = self._patiently(self._small.row, table.name, key)
        return super().get_row(table, key) if answer is None else answer["row"]

    def told_row(self, table: str, key: Sequence[Any]) -> dict[str, Any] | None:
        """Return the server's answer to a get in a session, as JSON; ``key`` is as sessions write it. None if no
        session takes it."""
        return self._patiently(self._small.told_row, table, key)

    # The store

    def move_tablet(
        self, table: str, tablet: int, to: str, server: str | None = None, progress: MoveProgress | None = None
    ) -> None:
        """Not supported. Raises InvalidArgumentError."""
        raise InvalidArgumentError("this server shares its tables with no other server: tablets cannot be moved")

    def perform(self, verb: Verb, *args: Any, **named: Any) -> Any:
        """Call a verb of the server. Reads wait for a server that is down."""
        body = verb.body(*args, **named)

        def ask() -> Any:
            return verb.value(self._results(verb.name, body))

        return self._patiently(ask) if verb.is_read else self._unless_applied(verb, ask)

    def _results(self, name: str, body: bytes) -> Iterator[bytes]:
        with as_store_errors():
            for answer in self._client.do_action(fl.Action(name, body), *self._in_time()):
                yield answer.body.to_pybytes()

    def close(self) -> None:
        """Close the connection; the server keeps running."""
        self._sessions.close()
        self._point_reads.close()
        self._client.close()

    def __repr__(self) -> str:
        return f"FlightStore({self.url!r})"


def _json(model: BaseModel) -> bytes:
    return model.model_dump_json(exclude_none=True).encode()


def _scan_json(spec: ScanSpec) -> bytes:
    """Return a scan without what has its default: an earlier version refuses parts that it does not know."""
    return spec.model_dump_json(exclude_none=True, exclude_defaults=True).encode()


def _begun(reader: fl.FlightStreamReader) -> fl.FlightStreamReader:
    """Wait until the server has accepted the ticket."""
    reader.schema  # noqa: B018
    return reader


def _pinned_to(spec: ScanSpec) -> int | None:
    return None if spec.as_of is None else parse_moment(spec.as_of)


def _ticket(part: ScanPart) -> ScanSpec:
    return ScanSpec.model_validate_json(part.ticket)
