"""Transactions over several servers: each server stages its rows of each part, and commits them itself."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from hashlib import blake2b

import pyarrow as pa

from ...schemas.errors import NotFoundError, StoreError, UnavailableError
from ...schemas.rows.operation import Operation
from ...schemas.rows.statement import Statement, StatementKind
from ...schemas.rows.transaction import (
    ServerRows,
    StagedBatch,
    StagedShape,
    StageResult,
    TransactionCommit,
    TransactionResult,
)
from ...schemas.rows.write import ROW_ERRORS_MAX, Stage, WriteCommand, WriteResult, combine
from ..flight.staging_put import named
from .servers import Servers
from .tablet_locations import TabletLocationsCache

_WAITING_BATCHES = 2
_LOOK_SECONDS = 0.2
_OPERATIONS = {
    StatementKind.UPDATE: Operation.UPDATE,
    StatementKind.DELETE: Operation.DELETE,
    StatementKind.RESTORE: Operation.UPSERT,
}
"""Who may send such a statement may also stage such an operation."""
_Staged = Mapping[str, Sequence[StagedShape]]
"""The parts of a transaction on each server."""
_COUNTS = ("rows", "applied", "ignored", "stale", "error_count", "truncated", "cells_truncated", "replaced")


class _Feed:
    """The batches on their way to one server, a few at a time."""

    def __init__(self, servers: Servers, name: str, command: WriteCommand, pool: ThreadPoolExecutor) -> None:
        self._waiting: queue.Queue[StagedBatch | None] = queue.Queue(_WAITING_BATCHES)
        stage = partial(copy_context().run, lambda: servers.store(name).stage(command, self._batches()))
        try:
            self.answer: Future[StageResult] = pool.submit(stage)
        except RuntimeError:  # no thread can start for it, but one of the others takes it later
            self._waiting.put(_BROKEN)
            raise

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
        feeds: dict[str, _Feed] = {}
        cuts = {name: ServerRows(server=name) for name in known.names}
        first = 0
        try:
            for name in known.names:
                feeds[name] = _Feed(servers, name, command, pool)
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
    """Stage an empty part on every server that has the table: from then on its tablets cannot move.

    No commit includes this part; it is discarded with the transaction.
    """
    assert command.stage is not None
    held = command.model_copy(update={"stage": command.stage.model_copy(update={"part": f"hold-{uuid.uuid4().hex}"})})
    servers.each_with(lambda store: store.stage(held, []))


def execute(servers: Servers, cache: TabletLocationsCache, asked: Statement) -> WriteResult:
    """Execute a statement on one server after the other, each on its own tablets, which cannot move meanwhile.

    If only some servers have executed a numbered statement, or may have, its tablets stay in place until it is sent
    again or the transaction expires: the rows of a tablet that moved would be changed twice, or not at all.

    Raises:
        StoreError: a server failed; a note lists those that had executed it before.
    """
    said = None if asked.writer is None else f"{asked.table}\0{asked.writer}\0{asked.seq}"
    name, is_half_done = _hold_name("statement", said), said is not None
    found: list[WriteResult] = []

    def hold(name: str) -> None:
        _hold(servers, _held(asked.table, _OPERATIONS[asked.kind], name))

    try:
        if said is not None:
            _hold_again(servers, name, hold)
        else:
            hold(name)
        cache.forget(asked.table)
        names = cache.of(asked.table).names  # a server that was added may lack the table
        for server in names:
            try:
                found.append(servers.store(server).execute(asked.model_copy(update={"here": True})))
            except StoreError as error:
                if found:
                    error.add_note(f"the statement was already executed on {', '.join(names[: len(found)])}")
                elif not (isinstance(error, UnavailableError) and error.answer_is_lost):
                    is_half_done = False
                raise
            if found[-1].error_count:
                break
        is_half_done = False
    finally:
        if not is_half_done:
            _let_go(servers, name)
    return combine(found)


def commit(servers: Servers, cache: TabletLocationsCache, asked: TransactionCommit) -> TransactionResult:
    """Commit a transaction on one server after the other; repeated, each server repeats its answer.

    With the version of an application, the tablets of its tables stay in place until all servers have committed it, or
    none has, or the transaction expires: the next attempt sends the rows anew, to where the tablets are then. A server
    skips all that it gets if it has committed, whether it had these tablets or not.

    Raises:
        StoreError: a server failed; a note lists those that had committed before.
    """
    name, is_shared = None, len(servers.names) > 1
    staged = servers.each(lambda store: store.staged_parts(asked.transaction)) if is_shared else {}
    if asked.app_id is not None and is_shared:
        name = _hold_name("version", f"{asked.app_id}\0{asked.app_version}")
        _hold_tables(servers, asked, staged, name)
    answers: dict[str, TransactionResult] = {}
    for server, mine in _commits(servers, cache, asked, staged).items():
        try:
            answers[server] = servers.store(server).commit_transaction(mine)
        except StoreError as error:
            if done := [each for each, answer in answers.items() if not answer.error_count]:
                error.add_note(f"the transaction was already committed on {', '.join(done)}")
            raise
    found = list(answers.values())
    if name is not None and len({not each.error_count for each in found}) == 1:
        _let_go(servers, name)
    errors = [error.model_copy(update={"server": name}) for name, each in answers.items() for error in each.errors]
    return found[0].model_copy(
        update={
            "timestamp": max(each.timestamp for each in found),
            "skipped": all(each.skipped or not (each.rows or each.truncated) for each in found)
            and any(each.skipped for each in found),
            "errors": errors[:ROW_ERRORS_MAX],
            **{part: sum(getattr(each, part) for each in found) for part in _COUNTS},
        }
    )


def _commits(
    servers: Servers, cache: TabletLocationsCache, asked: TransactionCommit, staged: _Staged
) -> dict[str, TransactionCommit]:
    """Return what each server has to commit: nothing of a table that others have, and it has not.

    A server that was added has only the tables that were made since, and those that it got tablets of.
    """
    if not staged:
        return dict.fromkeys(servers.names, asked)
    tables = {each.part: each.table for parts in staged.values() for each in parts if each.table}
    there = {name: {each.part for each in parts} for name, parts in staged.items()}
    everywhere = set.intersection(*there.values())
    doubtful = {tables[part] for part in asked.parts if part in tables and part not in everywhere}
    having = {table: _having(servers, cache, table) for table in (*doubtful, *asked.truncate)}
    commits: dict[str, TransactionCommit] = {}
    for name in servers.names:
        lacking = {table for table, names in having.items() if names and name not in names}
        parts = [part for part in asked.parts if part in there[name] or tables.get(part) not in lacking]
        truncate = [table for table in asked.truncate if table not in lacking]
        if not lacking:
            commits[name] = asked
        elif parts or truncate:
            commits[name] = asked.model_copy(update={"parts": parts, "truncate": truncate})
    return commits


def _having(servers: Servers, cache: TabletLocationsCache, table: str) -> set[str]:
    """Return the servers that have a table, which have all of it; empty if none has.

    Raises:
        UnavailableError: they have not: others know it by another name, or a tablet is on no server.
    """
    try:
        names = set(servers.each_with(lambda store: store.describe_table(table)))
        if len(names) < len(servers.names):
            cache.forget(table)
            names = set(cache.of(table).names)
        return names
    except NotFoundError:
        return set()


def _hold_name(kind: str, said: str | None) -> str:
    """Return the transaction that keeps tablets in place: the same for each attempt that says the same."""
    return uuid.uuid4().hex if said is None else f"{kind}-{blake2b(said.encode(), digest_size=16).hexdigest()}"


def _held(table: str, op: Operation, name: str) -> WriteCommand:
    return WriteCommand(table=table, op=op, stage=Stage(transaction=name, part="held"))


def _hold_again(servers: Servers, name: str, hold: Callable[[str], None]) -> None:
    """Keep tablets in place by a transaction that an attempt before may have kept them by.

    Another one, of this attempt alone, shows first whether all servers can be reached. If one cannot, this attempt
    keeps nothing in place, and what one before it kept stays so.
    """
    mine = uuid.uuid4().hex
    try:
        hold(mine)
        hold(name)
    finally:
        _let_go(servers, mine)


def _hold_tables(servers: Servers, asked: TransactionCommit, staged: _Staged, name: str) -> None:
    """Keep all tablets that a transaction changes in place. Servers that have committed it know its tables no more, but
    an attempt before has kept these in place, too."""
    operations = {each.table: each.operation for parts in staged.values() for each in parts if each.table}
    for table, op in {**dict.fromkeys(asked.truncate, Operation.DELETE), **operations}.items():
        with suppress(NotFoundError):  # it was dropped: the servers that have not committed say so
            _hold(servers, _held(table, op, name))


def _let_go(servers: Servers, name: str) -> None:
    """Let the tablets move that a transaction kept in place. On a server that is away it is discarded after its time to
    live."""
    servers.outcomes_now(lambda store: store.abort_transaction(name))
