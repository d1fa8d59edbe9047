"""Transactions over several servers: every server stages its rows of each part, and commits them by itself."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b

import pyarrow as pa

from ...schemas.errors import StoreError
from ...schemas.statement import Statement
from ...schemas.transaction import ServerRows, StagedBatch, StageResult, TransactionCommit, TransactionResult
from ...schemas.write import ROW_ERRORS_MAX, Stage, WriteCommand, WriteResult, combine
from ..flight.staging_put import named
from .servers import Servers
from .tablet_locations import TabletLocationsCache

_WAITING_BATCHES = 2
_LOOK_SECONDS = 0.2


class _Feed:
    """The batches of one server on their way to it, a few at a time."""

    def __init__(self, servers: Servers, name: str, command: WriteCommand, pool: ThreadPoolExecutor) -> None:
        self._waiting: queue.Queue[StagedBatch | None] = queue.Queue(_WAITING_BATCHES)
        self.answer: Future[StageResult] = pool.submit(lambda: servers.store(name).stage(command, self._batches()))

    def give(self, batch: StagedBatch | None) -> None:
        """Hand on a batch, None for the end; raise what the server said if it has stopped listening."""
        while True:
            if self.answer.done():
                self.answer.result()
                return
            try:
                self._waiting.put(batch, timeout=_LOOK_SECONDS)
                return
            except queue.Full:
                continue

    def give_up(self) -> None:
        """End a part that is not whole, so that the server throws it away."""
        while not self.answer.done():
            try:
                self._waiting.put(_BROKEN, timeout=_LOOK_SECONDS)
                return
            except queue.Full:
                continue

    def _batches(self) -> Iterator[StagedBatch]:
        while (batch := self._waiting.get()) is not None:
            if batch is _BROKEN:
                raise InterruptedError("the part is incomplete")
            yield batch


_BROKEN = StagedBatch(pa.record_batch([], names=[]))


def stage(
    servers: Servers, cache: TabletLocationsCache, command: WriteCommand, batches: Iterable[StagedBatch]
) -> StageResult:
    """Stage a part on all servers, each with the rows of its tablets, in the order in which they come."""
    _hold(servers, command)
    cache.forget(command.table)  # what is staged in a wrong place cannot be committed
    known = cache.of(command.table)
    with ThreadPoolExecutor(len(servers.names), thread_name_prefix="nyala-stage") as pool:
        feeds = {name: _Feed(servers, name, command, pool) for name in known.names}
        cuts = {name: ServerRows(server=name) for name in known.names}
        first = 0
        try:
            for batch, op in batches:
                for name, mine in known.by_server(batch).items():
                    cuts[name].add(first, mine, batch.num_rows)
                    part = batch if len(mine) == batch.num_rows else batch.take(pa.array(mine))
                    feeds[name].give(StagedBatch(part, op))
                first += batch.num_rows
            for feed in feeds.values():
                feed.give(None)
        except BaseException:
            for feed in feeds.values():
                feed.give_up()
            raise
        staged = {name: feed.answer.result() for name, feed in feeds.items()}
    longest = max(staged.values(), key=lambda each: len(each.parts))
    for name, each in staged.items():  # a commit names the same parts on all servers
        for number in range(len(each.parts), len(longest.parts)):
            servers.store(name).stage(named(command, number), [])
    rows, seconds = sum(each.rows for each in staged.values()), min(each.seconds_to_live for each in staged.values())
    server_rows = [cuts[name].model_copy(update={"part_rows": each.part_rows}) for name, each in staged.items()]
    return longest.model_copy(update={"rows": rows, "seconds_to_live": seconds, "servers": server_rows})


def _hold(servers: Servers, command: WriteCommand) -> None:
    """Stage an empty part everywhere: from then on the tablets of the table stay where they are.

    It is none of those that are committed, and thrown away with the transaction.
    """
    if command.stage is not None:
        held = command.model_copy(
            update={"stage": command.stage.model_copy(update={"part": f"hold-{uuid.uuid4().hex}"})}
        )
        servers.each_with(lambda store: store.stage(held, []))


def execute(servers: Servers, asked: Statement) -> WriteResult:
    """Execute a statement on one server after the other, each over its own tablets, which cannot move meanwhile.

    A numbered one that only some have executed keeps the tablets where they are, until it is sent again or the time of
    a transaction is over: where a tablet had moved, its rows would be changed twice, or not at all.

    Raises:
        StoreError: one of them could not; a note says which had executed it before.
    """
    name, is_half_done = _hold_name(asked), False
    held = WriteCommand(table=asked.table, stage=Stage(transaction=name, part="held"))
    _hold(servers, held)
    found: list[WriteResult] = []
    try:
        for server in servers.names:
            try:
                found.append(servers.store(server).execute(asked.model_copy(update={"here": True})))
            except StoreError as error:
                if found:
                    is_half_done = asked.writer is not None
                    error.add_note(f"it was executed on {', '.join(servers.names[: len(found)])} before that")
                raise
            if found[-1].error_count:
                break
    finally:
        if not is_half_done:
            with suppress(StoreError):  # it is thrown away in its time
                servers.each(lambda store: store.abort_transaction(name))
    return combine(found)


def _hold_name(asked: Statement) -> str:
    """Return the transaction that keeps tablets where they are: the same whenever a numbered statement is sent."""
    if asked.writer is None:
        return uuid.uuid4().hex
    said = f"{asked.table}\0{asked.writer}\0{asked.seq}"
    return f"statement-{blake2b(said.encode(), digest_size=16).hexdigest()}"


def commit(servers: Servers, asked: TransactionCommit) -> TransactionResult:
    """Commit a transaction on one server after the other; each answers as before when it is asked again."""
    answers = {name: servers.store(name).commit_transaction(asked) for name in servers.names}
    found = list(answers.values())
    errors = [error.model_copy(update={"server": name}) for name, each in answers.items() for error in each.errors]
    return found[0].model_copy(
        update={
            "timestamp": max(each.timestamp for each in found),
            "skipped": all(each.skipped for each in found),
            "errors": errors[:ROW_ERRORS_MAX],
            **{
                part: sum(getattr(each, part) for each in found)
                for part in ("rows", "applied", "ignored", "error_count", "truncated")
            },
        }
    )
