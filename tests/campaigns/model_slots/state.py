"""The states of the model of the log of slots, and the promises that they keep or break."""

from __future__ import annotations

from typing import Any, NamedTuple

from .sizes import Size

TTL = 2
CLAIM, DATA, RELEASE = 1, 2, 3
KINDS = ("", "claim", "data", "release")
NOBODY = 99_99

# What a process does: it watches, plans a claim, has sent one, looks above it, holds, has sent data, or a release.
IDLE, PLANNED, CLAIMING, CHECKING, HOLDING, WRITING, RELEASING = range(7)
SENDING = (CLAIMING, WRITING, RELEASING)


class Slot(NamedTuple):
    """The content of a slot."""

    kind: int
    epoch: int
    owner: int
    """Who made it, and in which of its lives: a number used once, but for NOBODY."""
    write: int
    """The bit of the write in it; 0 for none."""
    needed: int
    base: int
    """The file that the manifest names; 0 is the one that the store was made with."""
    ceiling: int
    stamp: int
    """The timestamp of the write."""
    chunk: int = 0
    """The chunk that has the write; 0: it is in the slot."""
    is_fence: bool = True
    """Of a claim: whether a former holder may run into it, so that it must stay."""


NOTHING = Slot(0, 0, 0, 0, 0, 0, 0, 0)


class Process(NamedTuple):
    """What a process knows. ``life`` counts its crashes; all but that and ``writes`` is lost in one."""

    role: int = IDLE
    life: int = 0
    writes: int = 0
    seen: int = 0
    """The end of the log when it looked last, and when it saw that first; 0: it has not looked."""
    seen_at: int = 0
    epoch: int = 0
    last: int = 0
    """The last slot that is known to be its own or the claim."""
    applied: int = 0
    base: int = 0
    needed: int = 0
    landed_base: int = 0
    landed_needed: int = 0
    lease: int = 0
    """When the last of its slots that landed was sent."""
    clock: int = 0
    ceiling: int = 0
    hold: int = 0
    """When it may answer: it took the log from a holder that lived, and whose reads go on until then."""
    number: int = 0
    """The slot that it is creating, with ``content``; when that was sent first, and how often again."""
    content: Slot = NOTHING
    sent: int = 0
    tries: int = 0
    chunk: int = 0
    """The chunk that it is putting, of a ``write`` with a ``stamp``, or has put if ``is_there``; 0: none."""
    write: int = 0
    stamp: int = 0
    is_there: bool = False
    free_below: int = 0
    """Slots below, but for claims, may be deleted, and these files; that goes on whatever becomes of it."""
    doomed: tuple[int, ...] = ()


class Put(NamedTuple):
    """A PUT under way: of a slot, or of a chunk, which has the number 0; its content says its name and its write."""

    process: int
    life: int
    attempt: int
    number: int
    content: Slot


class State(NamedTuple):
    """``slots[n]`` is slot n, from 1 on. The last four fields are an observer's."""

    slots: tuple[Slot, ...]
    files: tuple[tuple[int, int], ...]
    """(name, writes in it) of each file, sorted."""
    puts: tuple[Put, ...]
    processes: tuple[Process, ...]
    time: int
    acked: int = 0
    refused: int = 0
    """The writes of which a caller was told that they were not applied."""
    handed: int = 0
    """The greatest snapshot that was handed out, and whether a write landed later that is in it."""
    has_changed: bool = False
    chunks: tuple[tuple[int, int], ...] = ()
    """(name, write in it) of each chunk, sorted."""


Step = tuple[str, State]


def initial(size: Size) -> State:
    """Return the state in which the store was made, and nobody holds it: slot 1 is a claim without a holder."""
    made = Slot(CLAIM, 1, NOBODY, 0, 1, 0, 0, 0, is_fence=False)
    slots = (NOTHING, made, *(NOTHING,) * (size.slots - 1))
    return State(slots, ((0, 0),), (), (Process(),) * size.processes, 0)


def end_of(slots: tuple[Slot, ...]) -> int:
    """Return the number of the last slot that is there."""
    number = len(slots) - 1
    while not slots[number].kind:
        number -= 1
    return number


def recover(state: State, end: int) -> int:
    """Return the writes that a holder finds whose log ends at ``end``; -1 if a slot or the file is missing."""
    last = state.slots[end]
    found = dict(state.files).get(last.base, -1)
    if found < 0:
        return -1
    chunks = dict(state.chunks)
    for slot in state.slots[last.needed : end + 1]:
        write = chunks.get(slot.chunk, -1) if slot.chunk else slot.write
        if not slot.kind or write < 0:
            return -1
        found |= write
    return found


def broken(state: State) -> str:
    """Return which promise is broken; nothing if all are kept."""
    end = end_of(state.slots)
    found = recover(state, end)
    if found < 0:
        return f"a slot, a file or a chunk that slot {end} needs is missing"
    if state.acked & ~found:
        return "an acknowledged write is lost"
    if state.refused & found:
        return "a write is there that its caller was told is not"
    epochs = [slot.epoch for slot in state.slots[state.slots[end].needed : end + 1]]
    if epochs != sorted(epochs):
        return "epochs fall"
    return "a snapshot that was handed out has changed" if state.has_changed else ""


def owner_of(who: int, life: int) -> int:
    return who * 100 + life


def watching(process: Process) -> Process:
    """Return a process that holds nothing any more; what it had begun to delete goes on."""
    return Process(life=process.life, writes=process.writes, free_below=process.free_below, doomed=process.doomed)


def with_process(state: State, who: int, process: Process) -> State:
    processes = state.processes
    return state._replace(processes=(*processes[:who], process, *processes[who + 1 :]))


def with_slot(slots: tuple[Slot, ...], number: int, content: Slot) -> tuple[Slot, ...]:
    return (*slots[:number], content, *slots[number + 1 :])


def in_order(items: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(items))
