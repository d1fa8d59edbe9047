"""The servers of a placement, each connected on first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from ...schemas.errors import InvalidArgumentError, NotFoundError, StoreError, UnavailableError
from ...schemas.protocol.service import StoreService
from ...schemas.store.locations import joined
from ...schemas.store.placement import Placement
from ..flight.credentials import Credentials
from ..flight.deadline import seconds_left
from ..flight.server_wait import ServerWait
from ..flight.store import FlightStore

Answer = TypeVar("Answer")
_CLOSED = "the connection to the servers is closed"


class Servers:
    """The servers of a placement: their stores by name, in the order of the placement. Thread safe."""

    def __init__(
        self,
        placement: Placement,
        retries: bool = True,
        known: Mapping[str, StoreService] | None = None,
        credentials: Credentials | None = None,
        threads: int = 0,
    ) -> None:
        """``known`` are open stores; their owner closes them. All servers get the credentials, by default those of the
        environment. At most ``threads`` requests run at the same time, or one for each server if that is more: a client
        with many callers needs more than these, since a request may wait long."""
        self.placement = placement
        self.names = list(placement.servers)
        self.credentials = Credentials.of() if credentials is None else credentials
        self._retries = retries
        self._stores = dict(known or {})
        self._opened: list[StoreService] = []
        self._is_closed = False
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max(len(self.names), 2, threads), thread_name_prefix="nyala-servers")

    def store(self, name: str, patient: bool = True) -> StoreService:
        """Return the store of a server, by that of its locations which has it.

        Raises:
            InvalidArgumentError: there is no such server.
            UnavailableError: it cannot be reached; if ``patient``, for as long as a restarting server is waited for.
        """
        if name not in self.placement.servers:
            raise InvalidArgumentError(f"unknown server {name!r}; known: {', '.join(self.names)}")
        with self._lock:
            if name in self._stores:
                return self._stores[name]
        store = self._connected(name, patient)
        with self._lock:
            if name not in self._stores and not self._is_closed:
                self._stores[name] = store
                self._opened.append(store)
                return store
        store.close()  # another thread was faster
        if self._is_closed:
            raise InvalidArgumentError(_CLOSED)
        return self.store(name)

    def reached(self, name: str, patient: bool) -> StoreService:
        """Return the store of a server as ``store`` does. Unless ``patient``, its calls do not wait for a server that
        cannot be reached, either."""
        store = self.store(name, patient)
        return store if patient or not isinstance(store, FlightStore) else store.at_once()

    def adopt(self, name: str, store: StoreService) -> None:
        """Take over an open connection to a server."""
        with self._lock:
            self._stores[name] = store
            self._opened.append(store)

    def keep(self, store: StoreService) -> None:
        """Close a connection together with those to the servers."""
        with self._lock:
            self._opened.append(store)

    def each(self, act: Callable[[StoreService], Answer], names: Sequence[str] | None = None) -> dict[str, Answer]:
        """Ask servers, all if ``names`` is None, at the same time; return their answers by name.

        Raises:
            StoreError: the first error; a note names its server. All servers have answered by then.
        """
        return self.each_named(lambda _, store: act(store), names)

    def each_named(
        self, act: Callable[[str, StoreService], Answer], names: Sequence[str] | None = None
    ) -> dict[str, Answer]:
        """Like ``each``, but ``act`` also gets the server's name."""
        answers, errors = self._answers(act, names)
        if errors:
            raise next(iter(errors.values()))
        return answers

    def there(
        self, act: Callable[[StoreService], Answer], names: Sequence[str] | None = None, patient: bool = False
    ) -> tuple[dict[str, Answer], UnavailableError | None]:
        """Ask servers as ``each`` does; return the answers of those that can be reached, and the first error of the
        others. The caller decides whether the answers suffice, and may ask again with ``patient``: only then, or if
        none answers, are unreachable servers waited for.

        Raises:
            StoreError: none can be reached, or a server raised another error.
        """
        answers, away = self.there_now(act, names, patient)
        if away and not answers:
            if patient:
                raise away
            return self.there(act, names, patient=True)
        return answers, away

    def there_now(
        self, act: Callable[[StoreService], Answer], names: Sequence[str] | None = None, patient: bool = False
    ) -> tuple[dict[str, Answer], UnavailableError | None]:
        """Ask servers as ``there`` does, but return no answers if none can be reached.

        Raises:
            StoreError: a server raised another error.
        """
        answers, errors = self._answers(lambda _, store: act(store), names, patient)
        away = [error for error in errors.values() if isinstance(error, UnavailableError)]
        if len(away) < len(errors):
            raise next(error for error in errors.values() if error not in away)
        return answers, away[0] if away else None

    def _answers(
        self, act: Callable[[str, StoreService], Answer], names: Sequence[str] | None, patient: bool = True
    ) -> tuple[dict[str, Answer], dict[str, BaseException]]:
        chosen = self.names if names is None else names
        try:
            asked = {name: self._pool.submit(copy_context().run, self._asked, name, act, patient) for name in chosen}
        except RuntimeError:  # also where the machine has no room for a thread
            if self._is_closed:
                raise InvalidArgumentError(_CLOSED) from None
            raise
        errors = {name: error for name, future in asked.items() if (error := future.exception())}
        return {name: future.result() for name, future in asked.items() if name not in errors}, errors

    def each_with(self, act: Callable[[StoreService], Answer]) -> dict[str, Answer]:
        """Ask all servers for a table, as ``each`` does; leave out those that do not have it.

        A server newer than a table does not have it. The caller checks whether the others have all of it.

        Raises:
            NotFoundError: no server has it.
        """

        return _found(self.each(_or_not_found(act)))

    def each_if_known(self, act: Callable[[StoreService], Answer]) -> dict[str, Answer]:
        """Ask all servers for a table by a name that may be mistyped, as ``each_with`` does; wait for an unreachable
        server only if another has the table.

        Raises:
            NotFoundError: no server that can be reached has it; the message names one that was not asked.
        """
        answers, away = self.there(_or_not_found(act))
        missing = [answer for answer in answers.values() if isinstance(answer, NotFoundError)]
        if away and len(missing) == len(answers):
            raise NotFoundError(
                f"{missing[0].message}; but it may be on a server that could not be asked: {away.message}"
            )
        return self.each_with(act) if away else _found(answers)

    def there_with(
        self, act: Callable[[StoreService], Answer], patient: bool = False
    ) -> tuple[dict[str, Answer], UnavailableError | None]:
        """Ask all servers for a table, as ``there`` does; leave out those that do not have it.

        Raises:
            NotFoundError: no server that can be reached has it, after waiting for the others.
        """
        answers, away = self.there(_or_not_found(act), patient=patient)
        if away and not patient and all(isinstance(answer, NotFoundError) for answer in answers.values()):
            answers, away = self.there(_or_not_found(act), patient=True)
        return _found(answers), away

    def outcomes(self, act: Callable[[StoreService], Answer]) -> dict[str, Answer | StoreError]:
        """Ask one server after the other; return what each answered, or the error it raised."""
        found: dict[str, Answer | StoreError] = {}
        for name in self.names:
            try:
                found[name] = self._asked(name, lambda _, store: act(store))
            except StoreError as error:
                found[name] = error
        return found

    def outcomes_now(self, act: Callable[[StoreService], Answer]) -> dict[str, Answer | StoreError]:
        """Ask all servers at the same time, without waiting for those that are down; return what each answered, or the
        error that it raised, in the order of the placement."""
        answers, errors = self._answers(lambda _, store: act(store), None, patient=False)
        if strange := [error for error in errors.values() if not isinstance(error, StoreError)]:
            raise strange[0]
        found: dict[str, Any] = {**answers, **errors}
        return {name: found[name] for name in self.names}

    def close(self) -> None:
        """Close the connections that were opened here."""
        with self._lock:
            self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            opened, self._opened = self._opened, []
        for store in opened:
            store.close()

    def _asked(self, name: str, act: Callable[[str, StoreService], Answer], patient: bool = True) -> Answer:
        try:
            return act(name, self.reached(name, patient))
        except UnavailableError as error:
            if repr(name) in error.message:
                raise
            said = f"the server {name!r}: {error.message}"
            away = UnavailableError(said, error.retry_after_seconds, error.locations)
            away.answer_is_lost = error.answer_is_lost
            raise away from None
        except StoreError as error:
            error.add_note(f"from the server {name!r}")
            raise

    def _connected(self, name: str, patient: bool) -> StoreService:
        found: list[StoreService] = []

        def connect() -> bool:
            found.append(self._connected_at_once(name))
            return True

        try:
            connect()
        except UnavailableError as error:
            retries = self._retries and seconds_left() is None
            ServerWait(connect, retries, f"the server {name!r}", patient).wait(error)
        return found[0]

    def _connected_at_once(self, name: str) -> StoreService:
        locations = self.placement.servers[name]
        try:
            return FlightStore(locations, self._retries, credentials=self.credentials)
        except UnavailableError as error:
            why = error.message if len(locations) > 1 else f"{joined(locations)}: {error.message}"
            raise UnavailableError(f"the server {name!r} cannot be reached; {why}", locations=error.locations) from None


def _or_not_found(act: Callable[[StoreService], Answer]) -> Callable[[StoreService], Answer | NotFoundError]:
    def asked(store: StoreService) -> Answer | NotFoundError:
        try:
            return act(store)
        except NotFoundError as error:
            return error

    return asked


def _found(answers: Mapping[str, Answer | NotFoundError]) -> dict[str, Answer]:
    found = {name: answer for name, answer in answers.items() if not isinstance(answer, NotFoundError)}
    if not found:
        raise next(answer for answer in answers.values() if isinstance(answer, NotFoundError))
    return found
