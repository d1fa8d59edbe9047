"""Gateway: a store that shares its tables with other servers, and answers for all of them.

Requests for local tablets are answered locally; a scan or point read that includes tablets of other servers combines
the answers of all servers. Writes are never forwarded: they are rejected with the name of the server that has the
tablet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any, Protocol

import pyarrow as pa

from ...clients.cluster import moving
from ...clients.cluster.servers import Servers
from ...clients.cluster.store import PlacedStore
from ...clients.flight.credentials import Credentials
from ...clients.flight.deadline import answered_within
from ...clients.flight.store import FlightStore
from ...schemas.errors import (
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    StoreError,
    UnavailableError,
    WrongServerError,
)
from ...schemas.protocol.keys import key_of, only_row
from ...schemas.protocol.service import GrantKeeper, KeyReader, RowWriter, ScanStream, StoreService
from ...schemas.protocol.verb import Verb
from ...schemas.protocol.verbs import Verbs
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.scan_plan import ScanPlan
from ...schemas.store.description import TableDescription, TabletMap
from ...schemas.store.moving import (
    HandedOver,
    MoveFetch,
    MoveFile,
    MoveHandOver,
    MoveLacking,
    MoveProgress,
    MoveRead,
    MoveRound,
    MoveState,
    MoveStatus,
)
from ...schemas.store.placement import ServerIdentity
from ...schemas.store.whereabouts import Whereabouts
from ...schemas.table.alter import Alteration

_WHERE_SECONDS = 2.0


class _LocalStore(StoreService, GrantKeeper, Protocol):
    """The local store behind a gateway, which takes the files that the gateway fetches."""

    def move_copy(self, move: str, file: MoveFile) -> bool:
        """Have the bucket copy a file of a tablet that moves here; return False if it has to come as bytes."""
        ...

    def move_write(self, move: str, file: MoveFile, chunks: Iterable[bytes]) -> None:
        """Write a file of a tablet that moves here."""
        ...


class _AllServers(PlacedStore):
    """All servers of a placement as one store, at one of them, whose grants count here."""

    def __init__(self, servers: Servers, local: _LocalStore) -> None:
        super().__init__(servers)
        self.grants, self.grants_version = local.grants, local.grants_version


class Gateway(Verbs, KeyReader, RowWriter):
    """The store that a server of a placement serves, which answers for all of its servers: a ``StoreService`` that
    passes verbs that it does not define to the local store."""

    def __init__(self, local: _LocalStore, here: ServerIdentity, credentials: Credentials | None = None) -> None:
        """Take over ``local``, whose identity is ``here``; connect to other servers on demand, with these credentials,
        or the environment's."""
        self._local = local
        self._here = here
        # A thread of this server must not wait for another server: the client waits and retries.
        self._servers = Servers(here.placement, retries=False, known={here.server: local}, credentials=credentials)
        self._all: PlacedStore = _AllServers(self._servers, local)
        # Writes are for the tablets here: a refusal names the server that has the tablet.
        self.write_row, self.begin_row = local.write_row, local.begin_row
        self.write, self.begin_write = local.write, local.begin_write
        self.write_all, self.stage = local.write_all, local.stage
        self.grants_version = local.grants_version

    @property
    def all_servers(self) -> PlacedStore:
        """All servers as one store, which also writes to all of them."""
        return self._all

    def perform(self, verb: Verb, *args: Any, **named: Any) -> Any:
        """Pass the verb to the local store."""
        return getattr(self._local, verb.method)(*args, **named)

    def whereabouts(self) -> dict[tuple[str, str], Whereabouts | UnavailableError]:
        """Return what the process at each location of the other servers says of the store there, or why it says
        nothing; by server and location, all asked at once."""
        places = [
            (server, location)
            for server, locations in self._here.placement.servers.items()
            for location in (locations if server != self._here.server else ())
        ]

        def ask(place: tuple[str, str]) -> Whereabouts | UnavailableError:
            try:
                with (
                    answered_within(_WHERE_SECONDS),
                    closing(FlightStore(place[1], retries=False, credentials=self._servers.credentials)) as process,
                ):
                    return process.whereabouts()
            except UnavailableError as error:
                return error

        if not places:
            return {}
        with ThreadPoolExecutor(len(places), thread_name_prefix="nyala-where") as threads:
            return dict(zip(places, threads.map(ask, places), strict=True))

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService."""
        try:
            return self._local.scan(spec)
        except WrongServerError:
            if _is_for_one(spec):
                raise
            return self._all.scan(spec)

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService. Splits on other servers have their locations."""
        if _is_for_one(spec):
            self._settle(spec.table)
            return self._local.plan(spec)
        plan = self._all.plan(spec.model_copy(update={"pin": False}) if spec.is_whole else spec)
        mine = {"server": None, "locations": []}
        splits = [
            split.model_copy(update=mine) if split.server == self._here.server else split for split in plan.splits
        ]
        return plan.model_copy(update={"splits": splits})

    def look_up(self, table: str, keys: pa.RecordBatch) -> ScanStream:
        """See StoreService."""
        try:
            return self._local.look_up(table, keys)
        except WrongServerError:
            return self._all.look_up(table, keys)

    def get_row(self, table: TableDescription, key: Sequence[Any]) -> dict[str, Any] | None:
        """See KeyReader."""
        try:
            return self._local.get_row(table, key)
        except WrongServerError:
            return only_row(self._all.look_up(table.name, key_of(key, table)).to_table())

    # Moves of tablets: questions to other servers are asked here

    def tablets(self, name: str) -> TabletMap:
        """See StoreService. Takes over tablets that were handed over to this server but not taken."""
        self._settle(name)
        return self._local.tablets(name)

    def alter_table(self, alteration: Alteration) -> TableDescription:
        """See StoreService."""
        self._settle(alteration.table)
        return self._local.alter_table(alteration)

    def move_tablet(
        self, table: str, tablet: int, to: str, server: str | None = None, progress: MoveProgress | None = None
    ) -> None:
        """See StoreService."""
        self._all.move_tablet(table, tablet, to, server, progress)

    def move_receive(self, asked: MoveRound) -> MoveLacking:
        """See StoreService. Uses the round as the source reports it."""
        return self._local.move_receive(self._round(asked))

    def move_prepare(self, asked: MoveRound) -> None:
        """See StoreService. Uses the round as the source reports it."""
        self._local.move_prepare(self._round(asked))

    def move_take_over(self, asked: HandedOver) -> None:
        """See StoreService. Uses what the source reports as handed over.

        Raises:
            ConflictError: the source has not handed over anything in this move.
            NotFoundError: nothing was prepared here in this move.
            UnavailableError: the source cannot be reached.
        """
        found = self._local.moves(asked.table)
        if any(each.move == asked.move for each in found.arrived):
            return
        source = next((each.server for each in found.arriving if each.move == asked.move), None)
        if source is None:
            raise NotFoundError(f"the move {asked.move!r} of a tablet of {asked.table!r} was not prepared here")
        told = self._servers.store(source).move_status(asked.move).handed_over
        if told is None:
            raise ConflictError(f"the server {source!r} has not handed over a tablet in the move {asked.move!r}")
        self._local.move_take_over(told)

    def move_forget(self, move: str) -> None:
        """See StoreService. Rejected while the target has yet to take the tablet over."""
        for table in self._local.tables():
            for each in self._local.moves(table).left:
                if each.move == move:
                    moving.check_taken_over(self._servers, table, each)
        self._local.move_forget(move)

    def move_fetch(self, asked: MoveFetch) -> None:
        """See StoreService."""
        source = self._servers.store(asked.source)
        if not self._local.move_copy(asked.move, asked.file):
            chunks = source.move_read(MoveRead(move=asked.move, name=asked.file.name))
            self._local.move_write(asked.move, asked.file, chunks)

    def move_hand_over(self, asked: MoveHandOver) -> HandedOver:
        """See StoreService. Rejected unless the target confirms that it has prepared the round."""
        if self._local.move_status(asked.move).state is MoveState.UNDER_WAY:
            prepared = self._servers.store(asked.to).moves(asked.table).arriving
            if not any((each.move, each.number) == (asked.move, asked.number) for each in prepared):
                raise ConflictError(f"the server {asked.to!r} has not prepared round {asked.number} of the move")
        return self._local.move_hand_over(asked)

    def move_abort(self, move: str) -> MoveStatus:
        """See StoreService. Rejected if it would discard what the source has handed over."""
        status = self._local.move_status(move)
        if status.state is MoveState.UNKNOWN:
            for table in self._local.tables():
                for each in self._local.moves(table).arriving:
                    if each.move == move:
                        moving.check_given_up(self._servers, each)
        return self._local.move_abort(move)

    def _settle(self, table: str) -> None:
        """Finish moves to and from this server, as far as the other servers can be reached."""
        with suppress(StoreError):  # the caller gets the error of what follows
            found = self._local.moves(table)
            if found.arriving or found.left:
                moving.settle(self._servers, table, [self._here.server])

    def _round(self, asked: MoveRound) -> MoveRound:
        """Return a round as its source reports it.

        Raises:
            InvalidArgumentError: the source is this server, or not in the placement.
            ConflictError: the source aborted the move, or has a newer round.
        """
        if asked.source == self._here.server:
            raise InvalidArgumentError(f"a tablet cannot move from {asked.source!r} to itself")
        told = self._servers.store(asked.source).move_round(asked.move)
        if told.number != asked.number:
            raise ConflictError(
                f"round {asked.number} of the move is not the latest, {told.number}; begin another round"
            )
        return told

    def close(self) -> None:
        """Close the connections to other servers, and the store."""
        self._servers.close()
        self._local.close()


def _is_for_one(spec: ScanSpec) -> bool:
    """Return whether a scan is meant for this server only, by a client that asks each server."""
    return spec.here or spec.tablet is not None or spec.partition is not None
