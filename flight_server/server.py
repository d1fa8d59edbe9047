"""The Flight service: each method passes its call to a module, and raises Flight errors only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, cast

import pyarrow as pa
import pyarrow.flight as fl

from ..clients.flight import transport
from ..schemas.errors import InvalidArgumentError, PermissionDeniedError, StoreError, UnavailableError
from ..schemas.protocol.server_verbs import ServerVerbs
from ..schemas.protocol.service import GrantKeeper, StoreService
from ..schemas.protocol.verb import Kind
from ..schemas.store.metrics import Metrics
from .errors.errors import Translator, hide_tracebacks, verb
from .handlers import actions, exchange, get, info, put
from .handlers.combining import Combining
from .native import message_hook, server_builder
from .requests.calls import Call, Calls
from .requests.recent_requests import RecentRequests
from .settings.config import ServerConfig
from .stores.absent_store import AbsentStore
from .stores.fixed_whereabouts import OwnStore

if TYPE_CHECKING:
    from .requests.traces import Traces
    from .security.guard import Guard
    from .security.identity import Identity
    from .security.security import Security
    from .security.token_file import TokenEntry


_ANY = b"type.googleapis.com/arrow.flight.protocol.sql."
"""How the message of Flight SQL begins, after the number and the length of its first field."""


class SqlCalls(Protocol):
    """What answers the calls of Flight SQL."""

    @property
    def middleware(self) -> dict[str, fl.ServerMiddlewareFactory]:
        """What the server must be given."""
        ...

    def owns_action(self, name: str) -> bool:
        """Whether an action is one of Flight SQL."""
        ...

    def info(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor, call: Call) -> fl.FlightInfo:
        """Answer GetFlightInfo."""
        ...

    def schema(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor, call: Call) -> pa.Schema:
        """Answer GetSchema."""
        ...

    def stream(self, context: fl.ServerCallContext, ticket: bytes) -> fl.FlightDataStream:
        """Answer DoGet."""
        ...

    def put(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.FlightMetadataWriter,
        call: Call,
    ) -> None:
        """Answer DoPut."""
        ...

    def act(self, context: fl.ServerCallContext, action: fl.Action, call: Call) -> list[fl.Result]:
        """Answer DoAction."""
        ...

    def close(self) -> None:
        """End all statements."""
        ...


class FlightServer(fl.FlightServerBase):
    """A ``StoreService`` behind Arrow Flight. It serves from its construction on; ``serve`` must not be called.

    The caller opens the store, and closes it after the server.
    """

    def __init__(
        self,
        store: StoreService,
        location: str,
        config: ServerConfig | None = None,
        security: Security | None = None,
        traces: Traces | None = None,
        process: ServerVerbs | None = None,
        sql: Callable[[FlightServer], SqlCalls] | None = None,
    ) -> None:
        """Listen; without ``security``, without TLS and to anyone. ``traces`` get a span of each call, and are closed
        with this server. ``process`` knows whether another process may have the store. ``sql`` makes what answers
        Flight SQL.

        Raises:
            UnavailableError: it cannot listen at ``location``.
        """
        # Create what requests use before the first one can arrive.
        self.config = config or ServerConfig()
        self.process = process or OwnStore()
        self._security = security
        self._authentication = security.authentication if security else None
        self._served, self._shared = self._guarded_both(store)
        self.calls = Calls(self.config, self._authentication, traces)
        self.admission = self.calls.admission
        self._combining = Combining()
        self.translator = Translator(self.config.private_paths, self.calls.failed)
        hide_tracebacks()
        transport.prepare()
        message_hook.install()
        self.sql = sql(self) if sql else None
        middleware = ({"nyala-traces": traces.headers} if traces else {}) | (self.sql.middleware if self.sql else {})
        try:
            with server_builder.limiting(self.config.connection_streams_max, self.config.threads_max):
                if security:
                    security.listen(super().__init__, location, middleware)
                else:
                    super().__init__(location, middleware=middleware or None)
        except (pa.ArrowException, OSError):
            raise UnavailableError(
                f"cannot listen on {location}: the port is in use, or the address does not belong to this machine; "
                "choose another"
            ) from None

    @property
    def store(self) -> StoreService:
        """What it serves."""
        return self._served[0]

    def serve_store(self, store: StoreService) -> None:
        """Serve another store from now on. Calls that run go on with the former one. What was asked of a store is
        forgotten when it is elsewhere."""
        self._served, self._shared = self._guarded_both(store)
        if isinstance(store, AbsentStore):
            self.calls.recent = RecentRequests()

    def _guarded(self, store: StoreService) -> tuple[StoreService, Guard | None]:
        """Return a store with what guards it. The grants of one that is elsewhere are known to a replica only."""
        has_grants = not isinstance(store, AbsentStore) or isinstance(store, GrantKeeper)
        return store, self._security.guard(cast(StoreService, store)) if self._security and has_grants else None

    def _guarded_both(
        self, store: StoreService
    ) -> tuple[tuple[StoreService, Guard | None], tuple[StoreService, Guard | None]]:
        """Return a store, and all servers that share its tables as one store: the same where it is alone."""
        served, together = self._guarded(store), getattr(store, "all_servers", None)
        return served, served if together is None else self._guarded(together)

    @verb
    def list_flights(self, context: fl.ServerCallContext, criteria: bytes) -> list[fl.FlightInfo]:
        """One info for each table."""
        with self.calls.begin(context, "list_flights", Kind.PLAN) as call, call.working():
            return info.list_flights(self._callers_store, criteria)

    @verb
    def get_flight_info(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
        """Schema, size and tickets of a scan."""
        with self.calls.begin(context, "get_flight_info", Kind.PLAN, _size(descriptor)) as call, call.working():
            if sql := self._sql_of(descriptor.command):
                return sql.info(context, descriptor, call)
            return info.flight_info(self._callers_store, descriptor, self.config)

    def get_schema(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.SchemaResult:
        """The schema of a scan."""
        try:
            self.check_caller(context, "get_schema")
            with self.calls.begin(context, "get_schema", Kind.PLAN, _size(descriptor)) as call, call.working():
                if sql := self._sql_of(descriptor.command):
                    return fl.SchemaResult(sql.schema(context, descriptor, call))
                return fl.SchemaResult(info.schema(self._callers_store, descriptor, self.config))
        except BaseException as error:
            self.refused("get_schema", error)
            raise self.translator.for_get_schema(error, "get_schema") from None

    @verb
    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.FlightDataStream:
        """The batches of a scan."""
        if sql := self._sql_of(ticket.ticket):
            return sql.stream(context, ticket.ticket)
        return get.stream(self._callers_store, context, ticket.ticket, self.calls, self.translator)

    @verb
    def do_put(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.FlightMetadataWriter,
    ) -> None:
        """Writes, each batch a commit."""
        message_hook.check_first_message()
        with self.calls.begin(context, "do_put", Kind.PUT) as call, call.working():
            if sql := self._sql_of(descriptor.command):
                return sql.put(context, descriptor, reader, writer, call)
            put.write_stream(self._callers_store, context, descriptor, reader, writer, self.calls, call)

    @verb
    def do_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        """A session, or point reads: keys in, rows out."""
        message_hook.check_first_message()
        with self.calls.begin(context, "do_exchange", Kind.EXCHANGE) as call, call.working():
            exchange.exchange(
                self._callers_store, descriptor, reader, writer, self.calls, call, self.translator, self._combining
            )

    @verb
    def list_actions(self, context: fl.ServerCallContext) -> list[fl.ActionType]:
        """The actions of DoAction."""
        return actions.listed()

    @verb
    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> Iterator[fl.Result]:
        """One action, JSON in and JSON out; files of moving tablets are sent as bytes."""
        is_anyone = self._authentication is not None and self._authentication.caller is None
        if self._authentication and is_anyone and action.type != actions.FOR_ANYONE:
            self._authentication.require()
        if self.sql is not None and self.sql.owns_action(action.type):
            with self.calls.begin(context, action.type, Kind.STATEMENT) as call, call.working():
                return iter(self.sql.act(context, action, call))
        if action.type in actions.FOR_PROCESS_ADMINS:
            with self._administering(action):
                return self._run_action(context, action)
        return self._run_action(context, action, is_anyone)

    def _run_action(
        self, context: fl.ServerCallContext, action: fl.Action, is_anyone: bool = False
    ) -> Iterator[fl.Result]:
        return actions.run(self._callers_store, self.process, context, action, self.calls, self.translator, is_anyone)

    def _sql_of(self, body: bytes | None) -> SqlCalls | None:
        """Return what answers a body of Flight SQL; None: it is another one."""
        if body is None or (not body.startswith(_ANY, 2) and not body.startswith(_ANY, 3)):
            return None
        if self.sql is None:
            raise InvalidArgumentError("this server does not answer Flight SQL: start it with --sql")
        return self.sql

    @property
    def _callers_store(self) -> StoreService:
        """The store as far as the caller of this thread's call may use it."""
        return self.store_of(self._authentication.caller if self._authentication else None)

    def store_of(self, caller: Identity | None) -> StoreService:
        """Return the store as far as a caller may use it; ``caller`` is not asked for without authentication."""
        return self._as_allowed(caller, *self._served)

    def shared_store_of(self, caller: Identity | None) -> StoreService:
        """Return all servers that share tables with this one, as one store, as far as a caller may use it."""
        return self._as_allowed(caller, *self._shared)

    def _as_allowed(self, caller: Identity | None, store: StoreService, guard: Guard | None) -> StoreService:
        if isinstance(store, AbsentStore) and self._security and self._authentication:
            if caller and self._security.is_admin(caller):
                return store
            return store.for_others(
                guard.store_of(caller) if guard else None, lambda action: self._denied(caller, action)
            )
        return guard.store_of(caller) if guard else store

    def _denied(self, caller: Identity | None, action: str) -> None:
        if self._security and caller:
            self._security.note(caller, action, "denied")

    @contextmanager
    def _administering(self, action: fl.Action) -> Iterator[None]:
        """Check that the caller may administer the process, and note in the audit log what becomes of the body."""
        outcome = "INTERNAL"
        try:
            self._check_admin(action.type)
            yield
            outcome = "ok"
        except StoreError as error:
            outcome = "denied" if isinstance(error, PermissionDeniedError) else error.code
            raise
        finally:
            caller = self._authentication.caller if self._authentication else None
            if self._security and caller:
                self._security.note(caller, action.type, outcome, **actions.told(action))

    def _check_admin(self, action: str) -> None:
        """Raise PermissionDeniedError unless the caller may do everything, by its roles or by the grants that are
        known."""
        caller = self._authentication.caller if self._authentication else None
        if self._security is None or self._authentication is None or (caller and self._security.is_admin(caller)):
            return
        store, guard = self._served
        if caller is None or guard is None or isinstance(store, AbsentStore) or not guard.is_admin(caller):
            raise PermissionDeniedError(f"{action} is for administrators only")

    def check_caller(self, context: fl.ServerCallContext, verb: str) -> None:
        """Check who makes a call, before anything else is done for it.

        Raises:
            UnauthenticatedError: its token is not valid; or it has none, and the verb is not DoAction, which decides
                itself what anyone may do.
        """
        if self._authentication:
            self._authentication.enter(context)
            if verb != "do_action":
                self._authentication.require()

    def refused(self, verb: str, error: BaseException) -> None:
        """Trace a call that failed before it was admitted, on the thread of its handler."""
        if self.calls.traces:
            self.calls.traces.refused(verb, error)

    def token_entries(self) -> list[tuple[TokenEntry, bool]]:
        """Return what the token file says of each token, and whether its user may do everything; for administrators."""
        return self._security.token_entries() if self._security else []

    def metrics(self, caller: Identity | None) -> Metrics:
        """Return what the server and its store have counted; ``caller`` is not asked for without authentication.

        Raises:
            PermissionDeniedError: it is not for this caller.
        """
        return self.calls.metrics.now(self.store_of(caller), self.admission, self._authentication)

    def shutdown(self) -> None:
        """Take no more calls, and wait for running ones."""
        self.calls.stop()
        if self.sql:
            self.sql.close()
        if self._security:
            self._security.close()
        super().shutdown()
        self._combining.close()
        if self.calls.traces:
            self.calls.traces.close()


def _size(descriptor: fl.FlightDescriptor) -> int:
    return len(descriptor.command or b"")
