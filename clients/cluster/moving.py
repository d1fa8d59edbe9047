"""Moving a tablet: the client drives the steps, the servers keep what has been reached.

    source    move_begin                    a round: the tablet is flushed, its files are told
    target    move_receive, move_fetch      what it lacks of them, from the source
              ... again, until little comes; before the last round writers are sent away for a moment
    target    move_prepare                  the files are kept; the source is the owner
    source    move_hand_over                the target is the owner
    target    move_take_over                it serves the tablet
    source    move_forget

Whoever drives may stop at any place. Before ``move_hand_over`` nothing has happened but that files were copied, which
the target throws away when the source knows the move no more. After it the target takes over: when the move is made
again, or by itself when a client asks it where tablets are (`settle`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import suppress

from ...schemas.errors import ConflictError, InvalidArgumentError, NotFoundError, StoreError, UnavailableError
from ...schemas.moving import (
    HandedOver,
    MoveBegin,
    MoveFetch,
    MoveHandOver,
    MoveNote,
    MoveProgress,
    MoveRound,
    MoveState,
    MoveStatus,
)
from ...schemas.service import StoreService
from .servers import Servers

_ROUNDS = 12
_OPEN_ROUNDS = 4
"""So many rounds at most while writers are let in."""
_LITTLE_BYTES = 4 << 20
"""When a round has brought no more, the next is the last."""
_PAUSE_SECONDS = 0.05


def move(
    servers: Servers, table: str, tablet: int, to: str, server: str | None = None, progress: MoveProgress | None = None
) -> None:
    """Move a tablet to the server ``to``. Nothing happens if it is there.

    Raises:
        InvalidArgumentError: there is no such server, or several servers have a tablet of this number.
        NotFoundError: there is no such table or tablet.
        ConflictError: the tablet was divided or dropped meanwhile, or somebody else moves it.
        UnavailableError: a server cannot be reached, or rows of the table are staged. The same call goes on from there.
    """
    for name in (to, server):
        if name is not None and name not in servers.names:
            raise InvalidArgumentError(f"unknown server {name!r}; known: {', '.join(servers.names)}")
    settle(servers, table, servers.names)
    source = _source(servers, table, tablet, to, server)
    if source is not None:
        _Move(servers, table, tablet, source, to, progress).run()


def settle(servers: Servers, table: str, names: Sequence[str]) -> None:
    """Bring moves to some servers to their ends: take over what was handed over, throw away what no longer can be.

    Raises:
        UnavailableError: a server cannot be reached.
    """
    for name in names:
        store = servers.store(name)
        try:
            found = store.moves(table)
        except NotFoundError:
            continue
        for note in found.arriving:
            _settle(servers, name, note)
        for note in found.left:
            with suppress(UnavailableError, NotFoundError):
                # It was prepared there when it was handed over, and nothing but taking it over ends that.
                if any(each.move == note.move for each in servers.store(note.server).moves(table).arriving):
                    _settle(servers, note.server, note.model_copy(update={"server": name}))
                else:
                    store.move_forget(note.move)


def check_given_up(servers: Servers, note: MoveNote) -> None:
    """Raise ConflictError unless the source of a move knows it no more: what was prepared may be all that there is."""
    state = servers.store(note.server).move_status(note.move).state
    if state is not MoveState.UNKNOWN:
        raise ConflictError(f"the move {note.move!r} is {state.value} at {note.server!r} and cannot be aborted here")


def check_taken_over(servers: Servers, table: str, note: MoveNote) -> None:
    """Raise ConflictError when the target of a move has yet to take the tablet over: it will ask its source then.

    ``note`` is what the source tells of a move by which a tablet left it.

    Raises:
        NotFoundError: the target knows no such table, so that nobody can say.
    """
    if any(each.move == note.move for each in servers.store(note.server).moves(table).arriving):
        raise ConflictError(f"the server {note.server!r} has not taken over the tablet of the move {note.move!r} yet")


def _settle(servers: Servers, name: str, note: MoveNote) -> None:
    source = servers.store(note.server)
    status = source.move_status(note.move)
    if status.handed_over:
        servers.store(name).move_take_over(status.handed_over)
        source.move_forget(note.move)
    elif status.state is MoveState.UNKNOWN:
        _abort(servers.store(name), note.move)


def _abort(server: StoreService, move: str) -> MoveStatus:
    """Give a move up at a server, which may not know of it, or not any more."""
    try:
        return server.move_abort(move)
    except NotFoundError:
        return MoveStatus(state=MoveState.UNKNOWN)


def _source(servers: Servers, table: str, tablet: int, to: str, server: str | None) -> str | None:
    """Return the server that has the tablet; None when it is where it is to be."""
    maps = servers.each_with(lambda store: store.tablets(table))
    here = {name: [place.tablet for place in found.tablets if place.server is None] for name, found in maps.items()}
    owners = [name for name, numbers in here.items() if server in (None, name) and tablet in numbers]
    if len(owners) > 1:
        raise InvalidArgumentError(
            f"{' and '.join(owners)} each have a tablet {tablet} of table {table!r}: name the server to move it from"
        )
    if owners:
        return None if owners == [to] else owners[0]
    came = [note for note in servers.store(to).moves(table).arrived if note.tablet == tablet]
    if any(server in (None, note.server) for note in came):
        return None
    raise NotFoundError(f"table {table!r} has no tablet {tablet}{f' on {server!r}' if server else ''}")


class _Move:
    """One move, under a name that no other has."""

    def __init__(
        self, servers: Servers, table: str, tablet: int, source: str, to: str, progress: MoveProgress | None
    ) -> None:
        self._servers = servers
        self._source = servers.store(source)
        self._target = servers.store(to)
        self._begin = MoveBegin(move=uuid.uuid4().hex, table=table, tablet=tablet, to=to)
        self._progress = progress
        self._done = 0

    def run(self) -> None:
        try:
            told = self._prepared_and_handed_over()
        except BaseException as error:
            given_up = self._give_up()
            if given_up is None or not isinstance(error, StoreError):
                raise
            told = given_up  # the answer was lost, the tablet was handed over
        self._target.move_take_over(told)
        self._source.move_forget(told.move)

    def _prepared_and_handed_over(self) -> HandedOver:
        """Copy round after round, until one has all, and hand the tablet over."""
        little = False
        for number in range(_ROUNDS):
            last = little or number >= _OPEN_ROUNDS
            asked = self._begin.model_copy(update={"again": number > 0, "last": last})
            current = self._source.move_begin(asked)
            little = self._fetch(current) <= _LITTLE_BYTES and number > 0
            if last and (told := self._hand_over(current)):
                return told
        raise UnavailableError("the tablet changes faster than it can be moved; try again later", 1.0)

    def _fetch(self, current: MoveRound) -> int:
        """Let the target fetch what it lacks of a round; return how many bytes that were."""
        lacking = set(self._target.move_receive(current).names)
        missing = [file for file in current.files if file.name in lacking]
        total = self._done + sum(file.bytes for file in missing)
        for file in missing:
            self._target.move_fetch(MoveFetch(move=current.move, source=current.source, file=file))
            self._done += file.bytes
            if self._progress:
                self._progress(self._done, total)
        return sum(file.bytes for file in missing)

    def _hand_over(self, current: MoveRound) -> HandedOver | None:
        """Hand the tablet over; None when it has changed since the round."""
        settle(self._servers, current.table, [current.to])  # what this move has put an end to may be prepared there
        self._target.move_prepare(current)
        asked = MoveHandOver(move=current.move, table=current.table, to=current.to, number=current.number)
        try:
            return self._source.move_hand_over(asked)
        except UnavailableError as error:
            if error.retry_after_seconds != 0:  # at once: by another round
                raise
            time.sleep(_PAUSE_SECONDS)
            return None

    def _give_up(self) -> HandedOver | None:
        """Throw away what was copied, as far as the servers can be reached; return what was handed over in spite."""
        with suppress(StoreError):
            status = _abort(self._source, self._begin.move)
            if status.handed_over:
                return status.handed_over
            _abort(self._target, self._begin.move)
        return None
