"""FlightClient: a client whose search for the holder, and whose retries, are those of `clients/flight`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from nyala.clients.api.connect import connection_to
from nyala.clients.flight.credentials import Credentials
from nyala.clients.flight.store import FlightStore
from nyala.engine.bucket import hurried
from nyala.engine.bucket.patient import PatientBucket
from nyala.engine.home.where import read_where
from nyala.schemas.errors import UnavailableError
from nyala.schemas.protocol.service import StoreService
from tests.simulation.store.history import History
from tests.simulation.store.plan import Actor

from .clients import Client
from .member import NAME, Member, NoAnswerError
from .network import DistantObjects, Way

T = TypeVar("T")
_WITHOUT_RETRIES = 0.5
_WITH_ONE_LOCATION = 0.3
"""How often a client is given one location only; the processes name the others."""
_WITH_NOTE = 0.3
_NOTE_SECONDS = 1.0
"""How often a client also reads the note in the bucket, and how long it waits for that."""


class FlightClient(Client):
    """One client and its steps. It connects once, to the servers in any order, to one, or also to whom the note
    in the bucket names, and waits as that connection does."""

    def __init__(self, actor: Actor, members: Sequence[Member], history: History, random: Random) -> None:
        super().__init__(actor, members, history, random)
        self._retries = not self._is_once or random.random() >= _WITHOUT_RETRIES
        self._locations = [member.location for member in members]
        random.shuffle(self._locations)
        if random.random() < _WITH_ONE_LOCATION and self._retries:  # else it means that process alone
            del self._locations[1:]
        self._reads_note = random.random() < _WITH_NOTE
        self._bucket = PatientBucket(DistantObjects(members[0].network, Way()))
        self._store: FlightStore | None = None

    def run(self) -> None:
        """See Client."""
        try:
            super().run()
        finally:
            if self._store is not None:
                self._store.close()

    def _ask(self, work: Callable[[StoreService], T]) -> T:
        """Ask the holder, as the connection finds it. Raises NoAnswerError: it gave up, and the call may have had its
        effect; UnavailableError: it had none; StoreError."""
        try:
            return work(self._connected())
        except UnavailableError as error:
            if error.locations is not None and not self._retries:
                raise
            raise NoAnswerError(error.message) from error

    def _connected(self) -> FlightStore:
        if self._store is None:
            noted, name = (self._noted, NAME) if self._reads_note else (None, None)
            self._store = connection_to(self._locations, self._retries, Credentials(), noted, name)
        return self._store

    def _noted(self) -> Sequence[str]:
        """Return where the last holder noted in the bucket that it is. Raises StoreError."""
        found = read_where(hurried(self._bucket, _NOTE_SECONDS), NAME)
        return found.holder.locations if found and found.holder else ()
