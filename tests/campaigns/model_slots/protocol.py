"""A model of the log of slots: all that processes and a network can do to it, step by step.

A store in a bucket is a row of numbered objects, the slots. A *claim* makes a process the holder; its number is the
*epoch*. It is never deleted, unless it follows a release: then there is nobody whose next slot it must stop. Data slots
carry at most one write here, or none (a beat). Each slot names the current manifest (``base``, here one file, named by
the reign and a number), the first slot that must be replayed on top of it (``needed``), and a ceiling that no timestamp
handed out so far exceeds. A *release* lets another claim at once; its ceiling is the last timestamp that was handed
out.

    recover(end) = the writes in the file base(end)  +  those of the slots needed(end) .. end

Processes pause whenever they are not scheduled, crash, and have clocks of their own. The network delivers each PUT
late, twice or never, in any order, and answers it or not. Deletions happen one by one, at any time after they are
allowed.

``steps`` yields what may happen next in a state; ``broken`` says which promise a state breaks. ``bugs.py`` lists what
may be planted. Sets of writes are bit masks; states are nested tuples of integers, which hash fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .bugs import Bug
from .sizes import Size
from .state import (
    CHECKING,
    CLAIM,
    CLAIMING,
    DATA,
    HOLDING,
    IDLE,
    KINDS,
    NOBODY,
    NOTHING,
    PLANNED,
    RELEASE,
    RELEASING,
    SENDING,
    TTL,
    WRITING,
    Process,
    Put,
    Slot,
    State,
    Step,
    broken,
    end_of,
    in_order,
    initial,
    owner_of,
    recover,
    watching,
    with_process,
    with_slot,
)

_REIGN = 10_000
"""A chunk's name has the reign above so much."""


class Protocol:
    """The steps that ``size`` allows, with ``bug`` planted."""

    def __init__(self, size: Size, bug: Bug | None = None) -> None:
        self.size = size
        self.bug = bug

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what may happen next, and what it leads to."""
        if state.time < self.size.ticks:
            yield "a tick", state._replace(time=state.time + 1)
        yield from self._deliveries(state)
        for who, process in enumerate(state.processes):
            if process.life < self.size.crashes and process.role != IDLE:
                reborn = Process(life=process.life + 1, writes=process.writes)
                yield f"{who} crashes", with_process(state, who, reborn)
            yield from self._own_steps(state, who, process)
            if process.free_below or process.doomed:
                yield from self._deletions(state, who, process)

    def initial(self) -> State:
        """Return the state in which the store was made."""
        return initial(self.size)

    def wrong(self, state: State) -> str:
        """Return which promise is broken; nothing if all are kept."""
        return broken(state) or self.stale_read(state)

    def stale_read(self, state: State) -> str:
        """Return who would answer a read of now without a write that was acknowledged; nothing if nobody would."""
        for who, process in enumerate(state.processes):
            if state.acked & ~process.applied and self._serves(state, process):
                return f"a stale read at {who}"
        return ""

    def _serves(self, state: State, process: Process) -> bool:
        is_on = process.role in (HOLDING, WRITING) or (
            process.role == RELEASING and self.bug is Bug.READS_AFTER_RELEASE
        )
        return (
            is_on and self._answers(state, process) and (state.time < process.lease + TTL or self.bug is Bug.NO_LEASE)
        )

    def _answers(self, state: State, process: Process) -> bool:
        return state.time >= process.hold or self.bug is Bug.FORCE_ANSWERS_AT_ONCE

    def _wall(self, state: State, who: int) -> int:
        """Return a process's clock on the wall: all but the first one's are slow."""
        return 9 + state.time - 3 * who if self.size.clocks else 0  # never negative: -1 and -2 have one hash

    # --- the network ---

    def _deliveries(self, state: State) -> Iterator[Step]:
        """One PUT arrives; its sender hears of it, or not."""
        for at, put in enumerate(state.puts):
            if at and put == state.puts[at - 1]:
                continue
            process = state.processes[put.process]
            if not put.number:
                yield from self._chunk_arrives(state, at, put)
                continue
            is_created = not state.slots[put.number].kind
            slots = with_slot(state.slots, put.number, put.content) if is_created else state.slots
            after = state._replace(slots=slots, puts=state.puts[:at] + state.puts[at + 1 :])
            what = f"{KINDS[put.content.kind]} of {put.process} arrives at {put.number}"
            if is_created and 0 < put.content.stamp <= state.handed:
                after = after._replace(has_changed=True)
            yield f"{what}, nobody hears", after
            asked = (process.life, process.tries, process.number, process.content)
            if process.role in SENDING and asked == (put.life, put.attempt, put.number, put.content):
                yield f"{what}, answered {200 if is_created else 412}", self._answer(after, put.process, is_created)

    def _chunk_arrives(self, state: State, at: int, put: Put) -> Iterator[Step]:
        name, process = put.content.chunk, state.processes[put.process]
        chunks = in_order((*(each for each in state.chunks if each[0] != name), (name, put.content.write)))
        after = state._replace(chunks=chunks, puts=state.puts[:at] + state.puts[at + 1 :])
        yield f"the chunk {name} of {put.process} arrives, nobody hears", after
        if process.life == put.life and process.chunk == name and not process.is_there:
            heard = with_process(after, put.process, process._replace(is_there=True))
            yield f"the chunk {name} of {put.process} arrives, answered", heard

    def _answer(self, state: State, who: int, is_created: bool) -> State:
        """A process hears that its slot was created, or reads back what is there."""
        process = state.processes[who]
        is_mine = is_created or state.slots[process.number] == process.content
        if not is_created and self.bug is Bug.REFUSAL_IS_MINE:
            is_mine = True
        if not is_created and self.bug is Bug.REFUSAL_IS_OTHERS:
            is_mine = False
        if process.role == CLAIMING:
            after = process._replace(role=CHECKING) if is_mine else watching(process)
            return with_process(state, who, after)
        if is_mine:
            return self._landed(state, who)
        return self._fenced(state, who)

    def _landed(self, state: State, who: int) -> State:
        """The slot that a holder was creating is its own: durable, visible, acknowledged."""
        process, content = state.processes[who], state.processes[who].content
        sent = state.time if self.bug is Bug.LEASE_FROM_ANSWER else process.sent
        doomed = process.doomed
        if content.base != process.landed_base:
            doomed = in_order((*doomed, process.landed_base))
        after = process._replace(
            role=HOLDING,
            last=process.number,
            applied=process.applied | content.write,
            lease=max(process.lease, sent),
            ceiling=content.ceiling,
            landed_base=content.base,
            landed_needed=content.needed,
            free_below=max(process.free_below, content.needed),
            doomed=doomed if self.size.deletes_files else (),
            number=0,
            content=NOTHING,
            sent=0,
            tries=0,
        )
        if content.chunk:
            after = after._replace(chunk=0, write=0, stamp=0, is_there=False)
        if content.kind == RELEASE:
            after = watching(after)
        return with_process(state, who, after)._replace(acked=state.acked | content.write)

    def _fenced(self, state: State, who: int) -> State:
        """Another's bytes are there: who waits is told that nothing was applied; deletions that had begun go on."""
        process, write = state.processes[who], state.processes[who].content.write
        after = watching(process)
        if self.bug is Bug.FENCED_DELETES and process.content.base != process.landed_base:
            after = after._replace(doomed=in_order((*after.doomed, process.landed_base)))
        if self.bug is Bug.FENCED_ACKS:
            return with_process(state, who, after)._replace(acked=state.acked | write)
        return with_process(state, who, after)._replace(refused=state.refused | write)

    # --- what a process does by itself ---

    def _own_steps(self, state: State, who: int, process: Process) -> Iterator[Step]:
        if process.role == IDLE:
            yield from self._watch(state, who, process)
        elif process.role == PLANNED:
            after = process._replace(role=CLAIMING, sent=state.time, tries=0)
            yield f"{who} sends a claim of {process.number}", self._send(state, who, after)
        elif process.role == CHECKING:
            yield from self._check(state, who, process)
        elif process.role == HOLDING:
            yield from self._hold(state, who, process)
        else:
            yield from self._wait(state, who, process)

    def _watch(self, state: State, who: int, process: Process) -> Iterator[Step]:
        """Look for the end of the log; plan to claim the slot after it when it has not moved for TTL."""
        for end in self._listed(state, process):
            if process.seen != end:
                after = process._replace(seen=end, seen_at=state.time)
                yield f"{who} sees the end {end}", with_process(state, who, after)
        last = state.slots[process.seen]
        if not process.seen or process.seen >= self.size.slots or not last.kind:
            return
        is_free = last.owner == NOBODY or last.kind == RELEASE or self.bug is Bug.CLAIMS_AT_ONCE
        is_silent = is_free or state.time >= process.seen_at + TTL
        if is_silent or self.size.forces:
            number = process.seen + 1
            life = 0 if self.bug is Bug.CLAIM_WITHOUT_NONCE else process.life
            ceiling = max(last.ceiling, self._wall(state, who) + TTL) if self.size.clocks else 0
            claim = Slot(CLAIM, number, owner_of(who, life), 0, last.needed, last.base, ceiling, 0)
            if last.owner == NOBODY or last.kind == RELEASE or (self.bug is Bug.SILENT_NEED_NO_FENCE and is_silent):
                claim = claim._replace(is_fence=False)
            hold = 0 if is_silent else process.seen_at + TTL
            yield (
                f"{who} plans to claim {number}",
                with_process(state, who, process._replace(role=PLANNED, number=number, content=claim, hold=hold)),
            )

    def _listed(self, state: State, process: Process) -> Sequence[int]:
        """Return the ends of the log that a LIST may show: the true one, or any since the process looked last."""
        end = end_of(state.slots)
        return range(max(process.seen, 1), end + 1) if self.bug is Bug.STALE_LIST else (end,)

    def _check(self, state: State, who: int, process: Process) -> Iterator[Step]:
        """The claim landed: it is void if a slot is above it, for then it fell into one that was freed."""
        listed = (0,) if self.bug is Bug.NO_LOOK_ABOVE else self._listed(state, process)
        if max(listed) > process.number:
            yield f"{who} finds its claim void", with_process(state, who, watching(process))
        if min(listed) <= process.number:
            yield self._begin(state, who, process)

    def _begin(self, state: State, who: int, process: Process) -> Step:
        """Hold the log."""
        claim = process.content
        before = state.slots[process.number - 1]
        found = recover(state, process.number - 1) if before.kind else -1
        wall = self._wall(state, who)
        holder = process._replace(
            role=HOLDING,
            epoch=process.number,
            last=process.number,
            applied=found if found >= 0 else dict(state.files).get(claim.base, 0),  # < 0 only with a bug planted
            base=claim.base,
            needed=claim.needed,
            landed_base=claim.base,
            landed_needed=claim.needed,
            lease=process.sent,
            clock=wall if self.bug is Bug.CEILING_IGNORED else max(wall, before.ceiling) if self.size.clocks else 0,
            ceiling=claim.ceiling,
            number=0,
            content=NOTHING,
            sent=0,
            seen=0,
            seen_at=0,
        )
        return f"{who} holds from {process.number} on", with_process(state, who, holder)

    def _hold(self, state: State, who: int, process: Process) -> Iterator[Step]:
        if process.last < self.size.slots:
            yield from self._write(state, who, process)
        if process.applied != dict(state.files).get(process.base):
            yield self._flush(state, who, process)
        if self.size.deletes_files:
            yield from self._sweep(state, who, process)
        if self.size.chunks:
            yield from self._sweep_chunks(state, who, process)
        is_over_write = process.chunk and self.bug is not Bug.PASSES_A_WRITE
        if self.size.clocks and self._serves(state, process) and not is_over_write:
            yield from self._hand_out(state, who, process)

    def _hand_out(self, state: State, who: int, process: Process) -> Iterator[Step]:
        snapshot = max(self._wall(state, who), process.clock)
        if state.handed < snapshot <= process.ceiling or (snapshot > state.handed and self.bug is Bug.CEILING_EXCEEDED):
            after = with_process(state, who, process._replace(clock=snapshot))
            yield f"{who} hands out the snapshot {snapshot}", after._replace(handed=snapshot)

    def _write(self, state: State, who: int, process: Process) -> Iterator[Step]:
        """Send a slot: a write, a beat, a release."""
        written = sum(each.writes for each in state.processes)
        is_allowed = process.writes < self.size.writes and self._answers(state, process)
        if is_allowed and written < self.size.total_writes and not process.chunk:
            bit = 1 << (who * self.size.writes + process.writes)
            after = process._replace(writes=process.writes + 1)
            if self.size.chunks:
                yield self._put_chunk(state, who, after, bit)
            else:
                yield f"{who} writes", self._send_next(state, who, after, DATA, bit)
        if process.chunk and (process.is_there or self.bug is Bug.SLOT_BEFORE_CHUNK):
            yield f"{who} writes", self._send_next(state, who, process, DATA, process.write, process.chunk)
        renews = process.needed != process.landed_needed or state.time != process.lease
        if renews or self.bug is Bug.LEASE_FROM_ANSWER:
            yield f"{who} beats", self._send_next(state, who, process, DATA, 0)
        may_release = self._answers(state, process) or self.bug is Bug.RELEASES_IN_HOLD
        if self.size.releases and not process.chunk and may_release:
            yield f"{who} releases", self._send_next(state, who, process, RELEASE, 0)

    def _put_chunk(self, state: State, who: int, process: Process, write: int) -> Step:
        """Send the chunk of a write; slots without a write may pass it."""
        owner = owner_of(who, process.life)
        name = process.epoch * _REIGN + owner * 10 + process.writes
        if self.bug is Bug.CHUNKS_BY_PLACE:
            name = 99 * _REIGN + process.applied.bit_count() + 1  # as the number of its first record does
        stamp = max(self._wall(state, who), process.clock + 1) if self.size.clocks else 0
        after = process._replace(chunk=name, write=write, stamp=stamp, clock=max(process.clock, stamp))
        put = Put(who, process.life, 0, 0, NOTHING._replace(owner=owner, write=write, chunk=name))
        return f"{who} sends the chunk {name}", with_process(state, who, after)._replace(
            puts=in_order((*state.puts, put))
        )

    def _send_next(self, state: State, who: int, process: Process, kind: int, write: int, chunk: int = 0) -> State:
        stamp = ceiling = 0
        if self.size.clocks:
            wall = self._wall(state, who)
            stamp = (process.stamp if chunk else max(wall, process.clock + 1)) if write else 0
            settled = max(process.clock, min(wall, process.ceiling))
            ceiling = settled if kind == RELEASE else max(process.ceiling, wall + TTL, stamp)
        owner = owner_of(who, process.life)
        content = Slot(kind, process.epoch, owner, write, process.needed, process.base, ceiling, stamp, chunk)
        after = process._replace(
            role=RELEASING if kind == RELEASE else WRITING,
            number=process.last + 1,
            content=content,
            sent=state.time,
            tries=0,
            clock=max(process.clock, stamp),
        )
        return self._send(state, who, after)

    def _flush(self, state: State, who: int, process: Process) -> Step:
        """Put all that is applied into a new file, which the next slot will name."""
        reign = 0 if self.bug is Bug.NAMES_WITHOUT_REIGN else process.epoch
        name = reign * 100 + process.base % 100 + 1
        files = in_order((*((each, writes) for each, writes in state.files if each != name), (name, process.applied)))
        after = process._replace(base=name, needed=process.last + 1)
        if self.bug is Bug.DELETES_TOO_SOON:
            doomed = in_order((*process.doomed, process.landed_base)) if self.size.deletes_files else ()
            after = after._replace(free_below=after.needed, doomed=doomed)
        return f"{who} flushes into {name}", with_process(state, who, after)._replace(files=files)

    def _sweep(self, state: State, who: int, process: Process) -> Iterator[Step]:
        """Delete a file that an earlier reign has left, and that no manifest names."""
        for name, _ in state.files:
            is_old = name // 100 < process.epoch or self.bug is Bug.SWEEPS_OWN_REIGN
            is_named = name == process.landed_base or (name == process.base and self.bug is not Bug.SWEEPS_OWN_REIGN)
            if is_old and not is_named:
                files = tuple(each for each in state.files if each[0] != name)
                yield f"{who} sweeps {name}", state._replace(files=files)

    def _sweep_chunks(self, state: State, who: int, process: Process) -> Iterator[Step]:
        """Delete a chunk that an earlier reign has left, and that no slot names which the store needs."""
        named = {slot.chunk for slot in state.slots[process.landed_needed : process.last + 1]}
        for name, _ in state.chunks:
            is_old = name // _REIGN < process.epoch or self.bug is Bug.SWEEPS_OWN_CHUNKS
            if is_old and (name not in named or self.bug is Bug.SWEEPS_NAMED_CHUNKS):
                chunks = tuple(each for each in state.chunks if each[0] != name)
                yield f"{who} sweeps the chunk {name}", state._replace(chunks=chunks)

    def _wait(self, state: State, who: int, process: Process) -> Iterator[Step]:
        """No answer: send the same bytes to the same slot again."""
        if process.tries < self.size.doubles:
            yield (
                f"{who} sends {process.number} again",
                self._send(state, who, process._replace(tries=process.tries + 1)),
            )
        if process.role == WRITING and self.bug is Bug.ACKS_UNKNOWN:
            yield f"{who} acknowledges without knowing", self._landed(state, who)
        if process.role == RELEASING and self.bug is Bug.TIMESTAMPS_AFTER_RELEASE:
            yield from self._hand_out(state, who, process)
        if process.role == WRITING and self.bug is Bug.SKIPS_SLOT and process.number < self.size.slots:
            after = process._replace(number=process.number + 1, tries=0)
            yield f"{who} gives {process.number} up and takes the next", self._send(state, who, after)

    def _deletions(self, state: State, who: int, process: Process) -> Iterator[Step]:
        """Delete one slot, the lowest first, or one file."""
        end = end_of(state.slots)
        for number in range(1, min(process.free_below, end)):
            slot, chunk = state.slots[number], state.slots[number].chunk
            if slot.kind and (slot.kind != CLAIM or not slot.is_fence or self.bug is Bug.DELETES_CLAIMS):
                chunks = tuple(each for each in state.chunks if each[0] != chunk)
                slots = with_slot(state.slots, number, NOTHING)
                yield f"{who} deletes slot {number}", state._replace(slots=slots, chunks=chunks)
                break
        for name in process.doomed:
            rest = tuple(each for each in process.doomed if each != name)
            files = tuple(each for each in state.files if each[0] != name)
            after = with_process(state, who, process._replace(doomed=rest))
            yield f"{who} deletes file {name}", after._replace(files=files)
            break

    def _send(self, state: State, who: int, process: Process) -> State:
        put = Put(who, process.life, process.tries, process.number, process.content)
        return with_process(state, who, process)._replace(puts=in_order((*state.puts, put)))
