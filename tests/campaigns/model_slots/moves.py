"""A model of moves: all that two names of a bucket, and those who move a tablet between them, can do, step by step.

What one log does is in ``protocol.py``: here a commit of the process that holds a name lands, and one of a former
holder is refused. A process holds a *lease* until it has lost it; then another may take the name over, and the former
one lives on with what it knew. Questions about a move reach any process of a name that answers, also a former one.

A durable state of a name is its manifest: the file of the tablet if it is here, what is prepared (``arriving``), and
the move by which the tablet left. Each write makes a new file. The steps are those of ``clients/cluster/moving``; who
drives a move may stop anywhere and messages may come late, so each step happens at any time at which it is possible.
Where a server asks another before it commits, anything may happen in between (``told``).

``steps`` yields what may happen next; ``wrong`` says which promise a state breaks. Sets of writes are bit masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

Each = TypeVar("Each")

NONE = -1


class MoveBug(Enum):
    """The mistakes that the model must find when they are planted."""

    STATUS_WITHOUT_LEASE = "the state of a move is told without a look at the lease"
    MOVES_WITHOUT_LEASE = "what is prepared is told without a look at the lease"
    FREED_TOO_SOON = "a source frees the files before the slot has landed that hands the tablet over"
    HANDS_OVER_UNPREPARED = "a tablet is handed over though the target has not committed that it is prepared"
    HANDS_OVER_CHANGED = "a tablet is handed over that has changed since the round"
    FORGETS_AT_ONCE = "a source forgets a move before the target has taken the tablet over"
    FENCED_DELETES = "a former target deletes what it has prepared, though its slot did not land"
    DISCARDS_UNASKED = "a target discards what it has prepared without a question to the source"


@dataclass(frozen=True, slots=True)
class MoveSize:
    """Bounds that make the number of states finite."""

    moves: tuple[tuple[int, int], ...] = ((0, 1),)
    """From which name to which; they are begun once each, at any time."""
    reigns: tuple[int, int] = (2, 2)
    """How many processes have each name, one after the other."""
    writes: int = 1
    copies: int = 2
    """How often a file is copied, in all moves together."""


class Manifest(NamedTuple):
    """What is durable of a name. ``file``: of the tablet, if it is here."""

    file: int = NONE
    arriving: int = NONE
    """The move that has prepared a file; ``prepared`` is that file, ``of`` the one at the source it is a copy of."""
    prepared: int = NONE
    of: int = NONE
    left: int = NONE
    """The move by which the tablet left, until that is forgotten."""


class Process(NamedTuple):
    """What a process of a name knows: of the manifest, and in memory."""

    manifest: Manifest
    has_lease: bool = True
    departures: tuple[tuple[int, int], ...] = ()
    """The moves that it is the source of, with the file of the newest round."""
    arrivals: tuple[tuple[int, int, int], ...] = ()
    """The moves that it is the target of, with the copy, and the file of which that is one."""
    told: tuple[tuple[str, int], ...] = ()
    """What it has heard from the other name, and may act on."""


class State(NamedTuple):
    """``files[n]`` has the writes in file n; NONE: it was deleted. Of each name the last process is the holder."""

    files: tuple[int, ...]
    manifests: tuple[Manifest, Manifest]
    processes: tuple[tuple[Process, ...], tuple[Process, ...]]
    begun: int = 0
    copies: int = 0
    acked: int = 0


Step = tuple[str, State]


class Moves:
    """The steps that ``size`` allows, with ``bug`` planted."""

    def __init__(self, size: MoveSize, bug: MoveBug | None = None) -> None:
        self.size = size
        self.bug = bug

    def initial(self) -> State:
        """Return the state in which the first name has the tablet."""
        manifests = Manifest(file=0), Manifest()
        return State((0,), manifests, ((Process(manifests[0]),), (Process(manifests[1]),)))

    def wrong(self, state: State) -> str:
        """Return which promise is broken; nothing if all are kept."""
        here, there = state.manifests
        owners = [each.file for each in state.manifests if each.file != NONE]
        if len(owners) > 1:
            return "two servers have the tablet"
        if not owners:
            ways = [(here, there), (there, here)]
            owners = [to.prepared for source, to in ways if source.left != NONE and source.left == to.arriving]
        if not owners:
            return "no server has the tablet, or can take it over"
        if state.files[owners[0]] == NONE:
            return "a file of the tablet is missing"
        return "an acknowledged write is lost" if state.acked & ~state.files[owners[0]] else ""

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what may happen next, and what it leads to."""
        for name in (0, 1):
            yield from self._reign(state, name)
            for number, process in enumerate(state.processes[name]):
                yield from self._write(state, name, number, process)
        for move, (source, target) in enumerate(self.size.moves):
            for number, process in enumerate(state.processes[source]):
                yield from self._source(state, move, source, number, process)
            for number, process in enumerate(state.processes[target]):
                yield from self._target(state, move, target, number, process)

    # --- a name ---

    def _reign(self, state: State, name: int) -> Iterator[Step]:
        holder = state.processes[name][-1]
        if holder.has_lease:
            after = holder._replace(has_lease=False)
            yield f"{name} loses its lease", _with(state, name, len(state.processes[name]) - 1, after)
        elif len(state.processes[name]) < self.size.reigns[name]:
            some = (*state.processes[name], Process(state.manifests[name]))
            yield f"another process takes {name} over", state._replace(processes=_put(state.processes, name, some))

    def _write(self, state: State, name: int, number: int, process: Process) -> Iterator[Step]:
        file = process.manifest.file
        if file == NONE or state.acked + 1 >= 1 << self.size.writes or not _is_holder(state, name, number):
            return
        bit = state.acked + 1
        after = state._replace(files=(*state.files, state.files[file] | bit), acked=state.acked | bit)
        after = self._commit(after, name, process.manifest._replace(file=len(state.files)), process)
        yield f"{name} writes", _delete(after, file)

    def _commit(self, state: State, name: int, manifest: Manifest, process: Process) -> State:
        """The slot of the holder lands."""
        after = state._replace(manifests=_put(state.manifests, name, manifest))
        return _with(after, name, len(state.processes[name]) - 1, process._replace(manifest=manifest))

    # --- a source ---

    def _source(self, state: State, move: int, name: int, number: int, process: Process) -> Iterator[Step]:
        who, other = f"{name}.{number}", 1 - name
        rounds, manifest = dict(process.departures), process.manifest
        is_begun = state.begun >> move & 1
        if manifest.file != NONE and (move in rounds or not is_begun) and rounds.get(move) != manifest.file:
            yield self._begin(state, move, name, number, process)
        if move in rounds:
            gone = tuple(each for each in process.departures if each[0] != move)
            yield f"{who} aborts {move}", _with(state, name, number, process._replace(departures=gone))
            if manifest.file != NONE and self._is_prepared(state, move, other, rounds[move]):
                yield f"{who} hears that {move} is prepared", _hear(state, name, number, process, "prepared", move)
            unasked = self.bug is MoveBug.HANDS_OVER_UNPREPARED
            if ("prepared", move) in process.told or unasked:
                yield from self._hand_over(state, move, name, number, process)
        if manifest.left == move:
            for peer in state.processes[other]:
                answers = peer.has_lease or self.bug is MoveBug.MOVES_WITHOUT_LEASE
                if answers and peer.manifest.arriving != move:
                    yield f"{who} hears that {move} has ended", _hear(state, name, number, process, "ended", move)
            if ("ended", move) in process.told or self.bug is MoveBug.FORGETS_AT_ONCE:
                yield from self._forget(state, move, name, number, process)

    def _begin(self, state: State, move: int, name: int, number: int, process: Process) -> Step:
        """Begin a move, or its next round. It ends any other move of the tablet, and a round none has heard of."""
        after = process._replace(
            departures=((move, process.manifest.file),),
            told=tuple(each for each in process.told if each[0] != "prepared"),
        )
        return f"{name}.{number} begins a round of {move}", _with(
            state._replace(begun=state.begun | 1 << move), name, number, after
        )

    def _is_prepared(self, state: State, move: int, target: int, file: int) -> bool:
        """Whether a process of the target would say that it has prepared the round."""
        return any(
            (each.has_lease or self.bug is MoveBug.MOVES_WITHOUT_LEASE)
            and (each.manifest.arriving, each.manifest.of) == (move, file)
            for each in state.processes[target]
        )

    def _hand_over(self, state: State, move: int, name: int, number: int, process: Process) -> Iterator[Step]:
        file = process.manifest.file
        is_same = file != NONE and (dict(process.departures)[move] == file or self.bug is MoveBug.HANDS_OVER_CHANGED)
        if not is_same:
            return
        if self.bug is MoveBug.FREED_TOO_SOON:
            yield f"{name}.{number} frees the files of {move}", _delete(state, file)
        if _is_holder(state, name, number):
            after = process._replace(departures=(), told=())
            landed = self._commit(state, name, process.manifest._replace(file=NONE, left=move), after)
            yield f"{name}.{number} hands {move} over", _delete(landed, file)

    def _forget(self, state: State, move: int, name: int, number: int, process: Process) -> Iterator[Step]:
        if _is_holder(state, name, number):
            manifest = process.manifest._replace(left=NONE)
            yield f"{name}.{number} forgets {move}", self._commit(state, name, manifest, process._replace(told=()))

    def _status(self, state: State, move: int, source: int) -> Iterator[str]:
        """Yield what processes of the source may say of a move."""
        for each in state.processes[source]:
            if not each.has_lease and self.bug is not MoveBug.STATUS_WITHOUT_LEASE:
                continue
            is_open = move in dict(each.departures)
            yield "under way" if is_open else "handed over" if each.manifest.left == move else "unknown"

    # --- a target ---

    def _target(self, state: State, move: int, name: int, number: int, process: Process) -> Iterator[Step]:
        manifest = process.manifest
        yield from self._bring(state, move, name, number, process)
        if manifest.arriving == move:
            said = set(self._status(state, move, 1 - name))
            if self.bug is MoveBug.DISCARDS_UNASKED:
                said.add("unknown")
            for each in sorted(said - {"under way"}):
                if (each, move) not in process.told:
                    what = f"{name}.{number} hears that {move} is {each}"
                    yield what, _hear(state, name, number, process, each, move)
            if ("handed over", move) in process.told:
                yield from self._take_over(state, move, name, number, process)
            if ("unknown", move) in process.told:
                yield from self._discard(state, move, name, number, process)

    def _bring(self, state: State, move: int, name: int, number: int, process: Process) -> Iterator[Step]:
        """Copy the file of the newest round, as any process of the source tells it; or prepare it."""
        manifest, here = process.manifest, {each[0]: each for each in process.arrivals}
        for peer in state.processes[1 - name]:
            file = dict(peer.departures).get(move, NONE)
            if file == NONE or manifest.file != NONE:
                continue
            is_lacking = move not in here or here[move][2] != file
            if state.files[file] != NONE and is_lacking and state.copies < self.size.copies:
                others = tuple(each for each in process.arrivals if each[0] != move)
                after = process._replace(arrivals=(*others, (move, len(state.files), file)))
                copied = state._replace(files=(*state.files, state.files[file]), copies=state.copies + 1)
                yield f"{name}.{number} copies the file of {move}", _with(copied, name, number, after)
            is_free = manifest.arriving in (NONE, move)
            is_new = move in here and here[move][2] == file and manifest.prepared != here[move][1]
            if is_free and is_new and _is_holder(state, name, number):
                prepared = manifest._replace(arriving=move, prepared=here[move][1], of=file)
                yield f"{name}.{number} prepares {move}", self._commit(state, name, prepared, process)

    def _take_over(self, state: State, move: int, name: int, number: int, process: Process) -> Iterator[Step]:
        if _is_holder(state, name, number):
            manifest = Manifest(file=process.manifest.prepared)
            after = process._replace(arrivals=(), told=())
            yield f"{name}.{number} takes {move} over", self._commit(state, name, manifest, after)

    def _discard(self, state: State, move: int, name: int, number: int, process: Process) -> Iterator[Step]:
        prepared = process.manifest.prepared
        after = process._replace(arrivals=tuple(each for each in process.arrivals if each[0] != move), told=())
        if _is_holder(state, name, number):
            manifest = process.manifest._replace(arriving=NONE, prepared=NONE, of=NONE)
            yield f"{name}.{number} discards {move}", _delete(self._commit(state, name, manifest, after), prepared)
        elif self.bug is MoveBug.FENCED_DELETES and state.files[prepared] != NONE:
            yield f"{name}.{number} deletes what it prepared", _delete(state, prepared)


def _is_holder(state: State, name: int, number: int) -> bool:
    """Whether a slot of this process lands."""
    return number == len(state.processes[name]) - 1


def _hear(state: State, name: int, number: int, process: Process, what: str, move: int) -> State:
    told = tuple(sorted({*process.told, (what, move)}))
    return _with(state, name, number, process._replace(told=told))


def _delete(state: State, file: int) -> State:
    return state._replace(files=(*state.files[:file], NONE, *state.files[file + 1 :]))


def _with(state: State, name: int, number: int, process: Process) -> State:
    some = state.processes[name]
    return state._replace(
        processes=_put(state.processes, name, (*some[:number], process, *some[number + 1 :])),
    )


def _put(pair: tuple[Each, Each], at: int, new: Each) -> tuple[Each, Each]:
    return (new, pair[1]) if at == 0 else (pair[0], new)
