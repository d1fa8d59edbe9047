"""HolderClient: the Flight client of that one of several processes that has a store, wherever it goes.

Any process says whether it has the store, and else which has, by the action ``where``. Nobody is believed who says that
another has it: that one is asked, too. If several say that they have it, the one with the latest claim counts. A
process that has another store is not used, though it may be where the holder was before. It may come while no call
fails: what a process said of itself is believed for some 3 seconds, and one that replaced it may be called until they
are over.

The client shows its credentials to the processes that it was given, and to those that one of them named to which it
shows them anyway. A name leads to no other scheme, so never from TLS to a connection without.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn, TypeGuard, cast

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.errors import InvalidArgumentError, StoreError, UnavailableError
from ...schemas.protocol.server_verbs import ACTIONS
from ...schemas.protocol.verb import Verb
from ...schemas.store.description import Health
from ...schemas.store.whereabouts import Whereabouts
from . import heartbeat
from .deadline import seconds_left
from .errors import as_store_errors
from .header_client import HeaderClient
from .server_wait import RefusedError

_ASK_SECONDS = 1.0
"""A process that does not say within this time who has the store may be down."""
_CONFIRM_SECONDS = 10.0
"""A process that takes longer to say which store it has may be down."""
_SURE_SECONDS = 3.0
"""How long to believe that a process has the store of before: longer than from one heartbeat to the answer to the next.
gRPC connects again by itself, so an idle client sees nothing of a process that was replaced."""
_NOTE_SECONDS = 2.0
"""How often to read where the last holder noted that it is, while nobody has the store."""
_NAMED_MAX = 16
_LENGTH_MAX = 1024
"""How many locations may be named at once, and how long each may be."""
_WHERE, _HEALTH = ACTIONS["where"], ACTIONS["health"]

Client = fl.FlightClient | HeaderClient
Noted = Callable[[], Sequence[str]]
"""Returns locations where the store may be. Raises StoreError."""
Answers = dict[str, Whereabouts | StoreError]
"""What processes say of themselves, or their errors, by location."""


class HolderClient:
    """The Flight client of that one of several processes that has the store, wherever it goes. It has those methods of
    ``FlightClient`` that clients here use. Thread safe."""

    def __init__(
        self,
        given: Sequence[str],
        connect: Callable[[str], Client],
        noted: Noted | None = None,
        name: str | None = None,
    ) -> None:
        """Begin with the first of the given locations; ``follow`` finds the right one. ``noted`` is asked for more when
        nobody at those that are known has the store. ``name`` is that of the store; None: that of the first holder.

        Raises:
            InvalidArgumentError, ArrowException, ValueError, TypeError: as ``connect``, for a given location.
        """
        self._connect = connect
        self._noted = noted
        self._given = frozenset(given)
        self._schemes = {location.partition("://")[0] for location in given}
        self._clients: dict[str, Client] = {}
        self._lock = threading.Lock()
        self._name = name
        self._store_uuid = ""
        self._process = ""
        self._sure_until = time.monotonic() + _SURE_SECONDS
        self._found_at = 0.0
        self._missed: tuple[float, Answers] = 0.0, {}
        """When the last search that found nobody was begun, and what it was told."""
        self._note_read_at = -_NOTE_SECONDS
        self._closed = threading.Event()
        self._beats = False
        self.location = given[0]
        """Where the process is that is asked now."""
        try:
            for location in given:
                self._clients[location] = connect(location)
        except BaseException:
            self.close()
            raise
        self.here = self._clients[self.location]
        """Its client. An open stream belongs to it."""
        self._begin_beating()

    @property
    def is_alone(self) -> bool:
        """Whether no other process is known that could have the store."""
        return len(self._clients) == 1 and self._noted is None

    @property
    def locations(self) -> tuple[str, ...]:
        """All that are known."""
        return tuple(self._clients)

    @property
    def traceparent(self) -> Callable[[], str] | None:
        """See HeaderClient."""
        return self.here.traceparent if isinstance(self.here, HeaderClient) else None

    @property
    def current_token(self) -> Callable[[], str] | None:
        """See HeaderClient."""
        return self.here.current_token if isinstance(self.here, HeaderClient) else None

    def within(self, seconds: float) -> fl.FlightCallOptions:
        """Return options for a call that ends after a time."""
        return _within(self.here, seconds)

    def do_action(self, action: fl.Action, options: fl.FlightCallOptions | None = None) -> Any:
        """See FlightClient."""
        return self.sure().do_action(action, options)

    def do_get(self, ticket: fl.Ticket, options: fl.FlightCallOptions | None = None) -> fl.FlightStreamReader:
        """See FlightClient."""
        return self.sure().do_get(ticket, options)

    def do_exchange(self, descriptor: fl.FlightDescriptor) -> Any:
        """See FlightClient."""
        return self.sure().do_exchange(descriptor)

    def do_put(self, descriptor: fl.FlightDescriptor, schema: pa.Schema) -> Any:
        """See FlightClient."""
        return self.sure().do_put(descriptor, schema)

    def get_flight_info(
        self, descriptor: fl.FlightDescriptor, options: fl.FlightCallOptions | None = None
    ) -> fl.FlightInfo:
        """See FlightClient."""
        return self.sure().get_flight_info(descriptor, options)

    def close(self) -> None:
        """See FlightClient."""
        self._closed.set()
        for client in tuple(self._clients.values()):
            client.close()

    def _begin_beating(self) -> None:
        """Send heartbeats from now on, if there is another process to go to."""
        if not self._beats and not self.is_alone:
            self._beats = True
            heartbeat.start(self, self._closed)

    def beat(self) -> None:
        """Send something to the process that is asked now; if its machine is lost, this ends all calls to it."""
        try:
            self._reassure(_ASK_SECONDS)
        except Exception:  # a user's function for tokens may raise anything, and heartbeats go on
            self._sure_until = 0.0  # it may be gone, and another one come

    # Who has the store

    def follow(self) -> None:
        """Go to the process that has the store. A search serves all threads that waited for it since before it began:
        else the last of them would wait as often as there are threads.

        Raises:
            UnavailableError: nobody says so; its ``locations`` are not None if somebody waits to have it.
            StoreError: all refuse to say it, or have another store.
        """
        began = time.monotonic()
        answers: Answers = {}
        more: Sequence[str] | None = None
        searched = began
        while True:
            with self._lock:
                if self._found_at > began:
                    return  # another thread has just found it
                if more is None and self._missed[0] > began:
                    raise self._nobody(self._missed[1])
                searched = time.monotonic() if more is None else searched
                self._ask(more or (), answers)
                try:
                    self._go_to_one(answers)
                    self._found_at = time.monotonic()
                    return
                except StoreError:
                    if more is not None or not self._may_read_note():
                        self._missed = searched, answers
                        raise
                finally:
                    self._forget(answers)
            more = self._read_note()  # without the lock: a bucket may take its time

    def _may_read_note(self) -> bool:
        """Return whether to look into the bucket now; if so, nobody else does for some time."""
        now = time.monotonic()
        if self._noted is None or now < self._note_read_at + _NOTE_SECONDS:
            return False
        self._note_read_at = now
        return True

    def _read_note(self) -> Sequence[str]:
        try:
            return self._noted() if self._noted else ()
        except StoreError:
            return ()  # the bucket is away, or the note damaged: others may still say who has the store

    def told(self) -> Answers:
        """Ask all processes that are known; return what each says of itself, or its error, by location."""
        return self._asked(self._known())

    def client_at(self, location: str) -> Client:
        """Return the client of a process that was known. Raises UnavailableError: it was forgotten meanwhile."""
        client = self._clients.get(location)
        if client is None:
            raise UnavailableError(
                f"{location} is no longer used: the process that reported it no longer has the store", locations=[]
            )
        return client

    def confirm_at(self, location: str) -> None:
        """Ask a process whether it follows the store of before. Raises StoreError, as ``check`` and ``client_at``."""
        self.check(_answer(self.client_at(location), _HEALTH, _seconds()), location)

    def confirm(self, seconds: float | None = _CONFIRM_SECONDS) -> Health:
        """Ask the process that is asked now whether it has the store of before; return its health. Raises StoreError,
        as ``check``."""
        location = self.location
        about: Health = _answer(self.here, _HEALTH, seconds)
        self.check(about, location)
        return about

    def sure(self) -> Client:
        """Return the client of the process that is asked now, after it said lately which store it has. One with another
        store is asked nothing more. Raises UnavailableError: it does not say it."""
        if self._store_uuid and time.monotonic() > self._sure_until:
            with suppress(InvalidArgumentError):  # it is refused, and the right process looked for
                self._reassure(_seconds(_CONFIRM_SECONDS))
        return self.here

    def _reassure(self, seconds: float) -> None:
        """Find out whether the process that is asked now is that of before, else whether it has the store of before.
        Raises StoreError, as ``check``."""
        began = time.monotonic()
        try:
            found: Whereabouts = _answer(self.here, _WHERE, seconds)
            process = found.holder.process if found.holder else ""
        except InvalidArgumentError:
            process = ""  # an older server does not know the question
        if self._store_uuid and not (process and process == self._process):
            self.confirm(seconds)
            self._process = process
        self._sure_until = began + _SURE_SECONDS

    def check(self, about: Health, location: str | None = None) -> None:
        """Check that a process, by default the one that is asked now, has the store of before, by its health.

        Raises:
            InvalidArgumentError: it has another one.
        """
        if about.processes:
            return  # the health is that of any of them
        is_other_name = self._name is not None and about.name is not None and about.name != self._name
        if is_other_name or (self._store_uuid and about.store_uuid and about.store_uuid != self._store_uuid):
            where = location or self.location
            if where == self.location:
                self.here = cast(Client, _Nowhere(where))
            raise InvalidArgumentError(f"{where} now serves another store than before: check the URL")
        self._name = self._name or about.name
        self._store_uuid = self._store_uuid or about.store_uuid

    def _go_to_one(self, answers: Answers) -> None:
        """Use the latest holder of the store from now on. Raises StoreError: there is none, or it is not clear of which
        store."""
        if self._name is None:
            self._check_is_one_store(answers)
        holders = [location for location, found in answers.items() if _has_store(found)]
        for location in sorted(holders, key=lambda location: -_epoch(answers[location])):
            try:
                self._go_to(location)
            except StoreError as error:
                answers[location] = error
            else:
                return
        raise self._nobody(answers)

    def _check_is_one_store(self, answers: Answers) -> None:
        """Check that the given locations are of one store, as far as they say it. Raises InvalidArgumentError."""
        names: dict[str, str] = {}
        for location, found in answers.items():
            if location in self._given and isinstance(found, Whereabouts) and found.name:
                names.setdefault(found.name, location)
        if len(names) > 1:
            said = ", ".join(f"{location} serves the store {name}" for name, location in names.items())
            raise InvalidArgumentError(f"{said}: give only locations of one store")

    def _go_to(self, location: str) -> None:
        """Use the process at a location from now on. Raises StoreError: it has another store, or is gone already.

        Each time it is asked what it has: a process may have come back with another store.
        """
        client = self.client_at(location)
        about = _answer(client, _HEALTH, _seconds())
        if about.state == "standby":
            raise UnavailableError(f"{location} has just lost the store", locations=[])
        self.check(about, location)
        self.here, self.location = client, location

    def _known(self) -> list[tuple[str, Client]]:
        return list(self._clients.items())

    def _ask(self, named: Iterable[str], answers: Answers) -> None:
        """Ask all that are known and have not answered, then new locations that they name, as far as they may be
        asked."""
        self._admitted(named)
        answers |= self._judged(self._asked([each for each in self._known() if each[0] not in answers]))
        more = [each for found in answers.values() for each in _named(found) if each not in answers]
        answers |= self._judged(self._asked(self._admitted(more)))

    def _judged(self, answers: Answers) -> Answers:
        """Return answers with errors in place of what processes of other names say: their claims do not compare."""

        def judged(location: str, found: Whereabouts | StoreError) -> Whereabouts | StoreError:
            if isinstance(found, StoreError) or self._name in (None, found.name):
                return found
            return InvalidArgumentError(
                f"{location} serves another store: {found.name or 'a directory'}, not {self._name}"
            )

        return {location: judged(location, found) for location, found in answers.items()}

    def _asked(self, locations: Sequence[tuple[str, Client]]) -> Answers:
        """Ask processes at the same time."""
        if not locations:
            return {}
        seconds = _seconds()

        def ask(asked: tuple[str, Client]) -> Whereabouts | StoreError:
            _, client = asked
            try:
                return _answer(client, _WHERE, seconds)
            except InvalidArgumentError:
                return Whereabouts(state="holder")  # an older server does not know the question, and shares no store
            except StoreError as error:
                return error

        with ThreadPoolExecutor(len(locations), thread_name_prefix="nyala-where") as threads:
            return dict(zip((location for location, _ in locations), threads.map(ask, locations), strict=True))

    def _admitted(self, named: Iterable[str]) -> list[tuple[str, Client]]:
        """Connect to locations that were named, as far as they may be asked; return the new ones."""
        new: list[tuple[str, Client]] = []
        for location in named:
            is_alike = location.partition("://")[0] in self._schemes and len(location) <= _LENGTH_MAX
            if not is_alike or location in self._clients or len(new) >= _NAMED_MAX:
                continue
            try:
                self._clients[location] = self._connect(location)
            except (InvalidArgumentError, pa.ArrowException, ValueError, TypeError):
                continue  # it is no location, or would show a token to the network
            new.append((location, self._clients[location]))
        self._begin_beating()
        return new

    def _forget(self, answers: Answers) -> None:
        """Close the clients of locations that were only named, if they have nothing to do with this store; or were
        named first, if there are many: a process may have a new one after each start."""
        others = [location for location in self._clients if location not in {*self._given, self.location}]
        strangers = [location for location in others if location in answers and _is_refusal(answers[location])]
        for location in dict.fromkeys([*strangers, *others[: -2 * _NAMED_MAX]]):
            self._clients.pop(location).close()

    def _nobody(self, answers: Answers) -> StoreError:
        """Return the error where nobody has the store. What a location says that was only named refuses nothing."""
        refusals = {location: found for location, found in answers.items() if _is_refusal(found)}
        refusal = next((found for location, found in refusals.items() if location in self._given), None)
        if refusal is not None and len(refusals) == len(answers) and self._noted is None:
            return refusal
        reasons = [f"{location}: {_reason(found)}" for location, found in answers.items()]
        is_awaited = any(isinstance(found, Whereabouts) for found in answers.values())
        locations = [] if is_awaited else None
        if refusal is not None:
            return RefusedError("; ".join(reasons), locations, refusal)
        return UnavailableError("; ".join(reasons), locations=locations)


class _Nowhere:
    """In place of the client of a process that was seen with another store: each call is refused, and the right process
    looked for."""

    def __init__(self, location: str) -> None:
        self._location = location

    def __getattr__(self, _: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise UnavailableError(
                f"{self._location} served another store than before: check the URL, and connect again", locations=[]
            )

        return refuse


def _answer(client: Client, verb: Verb, seconds: float | None) -> Any:
    """Return what a process answers to a verb without a body. Raises StoreError."""
    try:
        with as_store_errors():
            answers = client.do_action(fl.Action(verb.name, b""), _within(client, seconds))
            return verb.value(answer.body.to_pybytes() for answer in answers)
    except ValueError as error:
        raise UnavailableError(f"the answer to {verb.name} is not valid: {error}") from None


def _seconds(most: float = _ASK_SECONDS) -> float:
    left = seconds_left()
    return most if left is None else min(left, most)


def _has_store(found: Whereabouts | StoreError) -> bool:
    return isinstance(found, Whereabouts) and found.state == "holder"


def _is_refusal(found: Whereabouts | StoreError) -> TypeGuard[StoreError]:
    return isinstance(found, StoreError) and not isinstance(found, UnavailableError)


def _named(found: Whereabouts | StoreError) -> list[str]:
    return found.holder.locations if isinstance(found, Whereabouts) and found.holder else []


def _epoch(found: Whereabouts | StoreError) -> int:
    return found.holder.epoch if isinstance(found, Whereabouts) and found.holder else 0


def _reason(found: Whereabouts | StoreError) -> str:
    return found.message if isinstance(found, StoreError) else "it is a standby, and no process has the store"


def _within(client: Client, seconds: float | None) -> fl.FlightCallOptions:
    return client.within(seconds) if isinstance(client, HeaderClient) else fl.FlightCallOptions(timeout=seconds)
