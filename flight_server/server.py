"""The Flight service: each verb is one line that hands it to its module, and lets nothing but clean errors out."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.flight as fl

from ..schemas.service import StoreService
from . import actions, exchange, get, info, put
from .config import ServerConfig
from .errors import Translator, hide_tracebacks, verb
from .limits import Admission, Kind


class FlightServer(fl.FlightServerBase):
    """A ``StoreService`` behind Arrow Flight. It serves from its construction on; ``serve`` must not be called.

    The store is the caller's: it outlives the server, and whoever opened it closes it.
    """

    def __init__(self, store: StoreService, location: str, config: ServerConfig | None = None) -> None:
        # What a request uses is there before the first one can come in.
        self.store = store
        self.config = config or ServerConfig()
        self.admission = Admission(self.config)
        self.translator = Translator(self.config.private_paths)
        hide_tracebacks()
        super().__init__(location)

    @verb
    def list_flights(self, context: fl.ServerCallContext, criteria: bytes) -> list[fl.FlightInfo]:
        """One info a table."""
        with self.admission.admit(Kind.CALL):
            return info.list_flights(self.store, criteria)

    @verb
    def get_flight_info(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
        """Schema, size and tickets of a scan."""
        with self.admission.admit(Kind.CALL):
            return info.flight_info(self.store, descriptor, self.config)

    def get_schema(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.SchemaResult:
        """The schema of a scan."""
        try:
            with self.admission.admit(Kind.CALL):
                return fl.SchemaResult(info.schema(self.store, descriptor, self.config))
        except BaseException as error:
            raise self.translator.for_get_schema(error, "get_schema") from None

    @verb
    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.FlightDataStream:
        """The batches of a scan."""
        return get.stream(self.store, ticket.ticket, self.config, self.admission, self.translator)

    @verb
    def do_put(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.FlightMetadataWriter,
    ) -> None:
        """Writes, each batch a commit."""
        with self.admission.admit(Kind.PUT):
            put.write_stream(self.store, context, descriptor, reader, writer, self.config, self.admission)

    @verb
    def do_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        """Point reads: keys in, rows out."""
        with self.admission.admit(Kind.EXCHANGE):
            exchange.point_reads(self.store, descriptor, reader, writer, self.config, self.admission)

    @verb
    def list_actions(self, context: fl.ServerCallContext) -> list[fl.ActionType]:
        """What DoAction can do."""
        return actions.listed()

    @verb
    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> Iterator[fl.Result]:
        """One action, JSON in and JSON out; files of tablets that move come as bytes."""
        with self.admission.admit(Kind.CALL):
            return actions.run(self.store, action, self.config)
