"""Transactions over several servers: each server stages its rows of each part, and commits them itself."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from hashlib import blake2b

import pyarrow as pa

from ...schemas.errors import StoreError
from ...schemas.rows.statement import Statement
from ...schemas.rows.transaction import ServerRows, StagedBatch, StageResult, TransactionCommit, TransactionResult
from ...schemas.rows.write import ROW_ERRORS_MAX, Stage, WriteCommand, WriteResult, combine
from ..flight.staging_put import named
from .servers import Servers
from .tablet_locations import TabletLocationsCache

_WAITING_BATCHES = 2
_LOOK_SECONDS = 0.2
_COUNTS = ("rows", "applied", "ignored", "stale", "error_count", "truncated", "cells_truncated", "replaced")


class _Feed:
    """The batches on their way to one server, a few at a time."""

    def __init__(self, servers: Servers, name: str, command: WriteCommand, pool: ThreadPoolExecutor) -> None:
        self._waiting: queue.Queue[StagedBatch | None] = queue.Queue(_WAITING_BATCHES)
        self.answer: Future[StageResult] = pool.submit(
            copy_context().run, lambda: servers.store(name).stage(command, self._batches())
        )

    def give(self, batch: StagedBatch | None) -> None:
        """Pass on a batch, None for the end; raise the server's error if it has stopped."""
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
        """End an incomplete part, so that the server discards it."""
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
    """Stage a part of a transaction on all servers, each with the rows of its tablets, in order of arrival."""
    _hold(servers, command)
    cache.forget(command.table)  # rows staged at the wrong server cannot be committed
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
    for name, each in staged.items():  # a commit names the same parts on every server
        for number in range(len(each.parts), len(longest.parts)):
            servers.store(name).stage(named(command, number), [])
    rows, seconds = sum(each.rows for each in staged.values()), min(each.seconds_to_live for each in staged.values())
    server_rows = [cuts[name].model_copy(update={"part_rows": each.part_rows}) for name, each in staged.items()]
    return longest.model_copy(update={"rows": rows, "seconds_to_live": seconds, "servers": server_rows})


def _hold(servers: Servers, command: WriteCommand) -> None:
    """Stage an empty part on every server: from then on the tablets of the table cannot move.

    No commit includes this part; it is discarded with the transaction.
    """
    if command.stage is not None:
        held = command.model_copy(
            update={"stage": command.stage.model_copy(update={"part": f"hold-{uuid.uuid4().hex}"})}
        )
        servers.each_with(lambda store: store.stage(held, []))


def execute(servers: Servers, asked: Statement) -> WriteResult:
    """Execute a statement on one server after the other, each on its own tablets, which cannot move meanwhile.

    If only some servers have executed a numbered statement, its tablets stay in place until it is sent again or the
    transaction expires: the rows of a tablet that moved would be changed twice, or not at all.

    Raises:
        StoreError: a server failed; a note lists those that had executed it before.
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
                    error.add_note(f"the statement was already executed on {', '.join(servers.names[: len(found)])}")
                raise
            if found[-1].error_count:
                break
    finally:
        if not is_half_done:
            with suppress(StoreError):  # it is discarded after its time to live
                servers.each(lambda store: store.abort_transaction(name))
    return combine(found)


def _hold_name(asked: Statement) -> str:
    """Return the transaction that keeps tablets in place: the same for each attempt of a numbered statement."""
    if asked.writer is None:
        return uuid.uuid4().hex
    said = f"{asked.table}\0{asked.writer}\0{asked.seq}"
    return f"statement-{blake2b(said.encode(), digest_size=16).hexdigest()}"


def commit(servers: Servers, asked: TransactionCommit) -> TransactionResult:
    """Commit a transaction on one server after the other; repeated, each server repeats its answer."""
    answers = {name: servers.store(name).commit_transaction(asked) for name in servers.names}
    found = list(answers.values())
    errors = [error.model_copy(update={"server": name}) for name, each in answers.items() for error in each.errors]
    return found[0].model_copy(
        update={
            "timestamp": max(each.timestamp for each in found),
            "skipped": all(each.skipped for each in found),
            "errors": errors[:ROW_ERRORS_MAX],
            **{part: sum(getattr(each, part) for each in found) for part in _COUNTS},
        }
    )
