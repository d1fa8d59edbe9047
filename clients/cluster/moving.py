"""Moving a tablet: the client drives the steps, the servers keep the progress.

    source    move_begin                    a round: flushes the tablet, lists its files
    target    move_receive, move_fetch      copies the files it lacks from the source
              ... repeated until a round is small; before the last one the source briefly rejects writers
    target    move_prepare                  keeps the files; the source is still the owner
    source    move_hand_over                the target is the owner
    target    move_take_over                serves the tablet
    source    move_forget

The client may stop at any step. Before ``move_hand_over`` files were merely copied; the target discards them once the
source has forgotten the move. After it the target takes over: when the move is repeated, or by itself when a client
asks it for tablet locations (`settle`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import suppress

from ...schemas.errors import ConflictError, InvalidArgumentError, NotFoundError, StoreError, UnavailableError
from ...schemas.protocol.service import StoreService
from ...schemas.store.moving import (
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
from .definitions import is_whole
from .servers import Servers

_ROUNDS = 12
_OPEN_ROUNDS = 4
"""Rounds that admit writers, at most."""
_LITTLE_BYTES = 4 << 20
"""After a round that copied at most this much, the next round is the last."""
_PAUSE_SECONDS = 0.05


def move(
    servers: Servers, table: str, tablet: int, to: str, server: str | None = None, progress: MoveProgress | None = None
) -> None:
    """Move a tablet from its server to the server ``to``. Does nothing if it is there.

    Raises:
        InvalidArgumentError: there is no such server, or several servers have a tablet of this number.
        NotFoundError: there is no such table or tablet.
        ConflictError: the tablet was split or dropped meanwhile, the table was renamed or dropped on some servers only,
            or another move of the tablet is in progress.
        UnavailableError: a server cannot be reached, or rows of the table are staged. The same call resumes the move.
    """
    for name in (to, server):
        if name is not None and name not in servers.names:
            raise InvalidArgumentError(f"unknown server {name!r}; known: {', '.join(servers.names)}")
    settle(servers, table, servers.names)
    source = _source(servers, table, tablet, to, server)
    if source is not None:
        _Move(servers, table, tablet, source, to, progress).run()


def settle(servers: Servers, table: str, names: Sequence[str]) -> None:
    """Finish interrupted moves to these servers: take over tablets that were handed over, discard what cannot be.

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
                # It was prepared there before it was handed over, and only the take-over ends that.
                if any(each.move == note.move for each in servers.store(note.server).moves(table).arriving):
                    _settle(servers, note.server, note.model_copy(update={"server": name}))
                else:
                    store.move_forget(note.move)


def check_given_up(servers: Servers, note: MoveNote) -> None:
    """Raise ConflictError unless the source server has forgotten a tablet's move: the prepared copy may be the only
    one."""
    state = servers.store(note.server).move_status(note.move).state
    if state is not MoveState.UNKNOWN:
        raise ConflictError(f"the move {note.move!r} is {state.value} at {note.server!r} and cannot be aborted here")


def check_taken_over(servers: Servers, table: str, note: MoveNote) -> None:
    """Raise ConflictError if the target server of a tablet's move has yet to take the tablet over: it will then ask its
    source.

    ``note`` is the source's record of a move by which a tablet left it.

    Raises:
        NotFoundError: the target has no such table, so the outcome is unknown.
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
    """Abort a move at a server, which may not know it."""
    try:
        return server.move_abort(move)
    except NotFoundError:
        return MoveStatus(state=MoveState.UNKNOWN)


def _source(servers: Servers, table: str, tablet: int, to: str, server: str | None) -> str | None:
    """Return the server that has the tablet; None if it is already at its destination."""
    maps = servers.each_with(lambda store: store.tablets(table))
    if to not in maps and not is_whole(maps.values()):  # it would get a second table, beside that of the other name
        raise ConflictError(
            f"table {table!r} is not on {to!r}, and {', '.join(maps)} do not have all of its tablets: an alteration or "
            "a drop reached only some servers; repeat it to apply it on the other servers"
        )
    here = {name: [place.tablet for place in found.tablets if place.server is None] for name, found in maps.items()}
    owners = [name for name, numbers in here.items() if server in (None, name) and tablet in numbers]
    if len(owners) > 1:
        raise InvalidArgumentError(
            f"{' and '.join(owners)} each have a tablet {tablet} of table {table!r}: name the server to move the "
            "tablet from"
        )
    if owners:
        return None if owners == [to] else owners[0]
    came = [note for note in servers.store(to).moves(table).arrived if note.tablet == tablet]
    if any(server in (None, note.server) for note in came):
        return None
    raise NotFoundError(f"table {table!r} has no tablet {tablet}{f' on {server!r}' if server else ''}")


class _Move:
    """One move, under a unique name."""

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
            told = given_up  # only the answer was lost: the tablet was handed over
        self._target.move_take_over(told)
        self._source.move_forget(told.move)

    def _prepared_and_handed_over(self) -> HandedOver:
        """Copy in rounds until the target has everything, then hand the tablet over."""
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
        """Let the target fetch the files of a round that it lacks; return their bytes."""
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
        """Hand the tablet over; return None if it has changed since the round."""
        settle(self._servers, current.table, [current.to])  # an older, ended move may still be prepared there
        self._target.move_prepare(current)
        asked = MoveHandOver(move=current.move, table=current.table, to=current.to, number=current.number)
        try:
            return self._source.move_hand_over(asked)
        except UnavailableError as error:
            if error.retry_after_seconds != 0:  # 0 asks for another round at once
                raise
            time.sleep(_PAUSE_SECONDS)
            return None

    def _give_up(self) -> HandedOver | None:
        """Discard the copies on servers that can be reached; return the tablet if it was handed over after all."""
        with suppress(StoreError):
            status = _abort(self._source, self._begin.move)
            if status.handed_over:
                return status.handed_over
            _abort(self._target, self._begin.move)
        return None
