"""The runner, on a source in memory: what another source may rely on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from nyala import ConflictError, InvalidArgumentError, UnavailableError
from nyala.clients.api.database import Database
from nyala.clients.sources import runner as runner_module
from nyala.sources import (
    POSITIONS,
    BatchLimits,
    ChangedRows,
    NewColumns,
    Runner,
    Snapshot,
    SnapshotPart,
    Source,
    SourceBatch,
    SourceChangedError,
    SourceColumn,
    SourceTable,
    State,
    Truncation,
)

TABLE = SourceTable(
    name="there.a",
    target="a",
    columns=[SourceColumn(name="id", type="int64"), SourceColumn(name="n", type="int64")],
    key=["id"],
)


def changes(*rows: tuple[int, int | None]) -> ChangedRows:
    """Return changes of the table; a row without ``n`` is a delete."""
    batch = pa.RecordBatch.from_pylist([{"id": number, "n": n} for number, n in rows], schema=TABLE.schema)
    return ChangedRows(TABLE.name, batch, np.array([n is None for _, n in rows]))


class Memory(Source):
    """Transactions in a list; their positions are their numbers, from 1."""

    kind = "memory"
    name = "memory"

    def __init__(self, *transactions: Sequence[ChangedRows | Truncation | NewColumns]) -> None:
        self.chosen = {TABLE.name: TABLE.target}
        self.transactions = list(transactions)
        self.confirmed: list[str] = []
        self.abandoned: list[str] = []
        self.unavailable = 0
        self.limits = BatchLimits()
        self.before_batch = lambda number: None
        self.dies_at: list[int] = []
        """The transactions that do not end the first time."""
        self._memos = 0

    def tables(self) -> list[SourceTable]:
        return [TABLE]

    def new_memo(self) -> str:
        self._memos += 1
        return f"memo {self._memos}"

    @contextmanager
    def snapshot(self, memo: str, tables: Sequence[SourceTable]) -> Iterator[Snapshot]:
        def read(first: int) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"id": [first, first + 1], "n": [0, 0]}, schema=TABLE.schema)

        yield Snapshot("0", [SnapshotPart(TABLE.name, lambda first=first: read(first)) for first in (1, 3, 5)])

    def abandon(self, memo: str) -> None:
        self.abandoned.append(memo)

    def changes(
        self, memo: str, tables: Sequence[SourceTable], after: str, limits: BatchLimits
    ) -> Iterator[SourceBatch]:
        self.limits = limits
        for number, steps in enumerate(self.transactions, 1):
            if number > int(after):
                self.before_batch(number)
                if self.unavailable:
                    self.unavailable -= 1
                    raise UnavailableError("the source is away")
                for step in steps:  # each a part of the transaction
                    yield SourceBatch([step])
                if number in self.dies_at:
                    self.dies_at.remove(number)
                    raise InterruptedError
                yield SourceBatch([], str(number), datetime.now(UTC), 1, 0)
        yield SourceBatch(position=str(len(self.transactions)), is_caught_up=True)

    def confirm(self, position: str) -> None:
        self.confirmed.append(position)

    def close(self) -> None:
        """Nothing is open."""


def rows(database: Database) -> dict[int, int]:
    table = database.table("a").scan().to_arrow()
    return dict(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))


def test_a_copy_and_transactions_in_parts(db: Database) -> None:
    source = Memory(
        [changes((1, 10)), changes((1, 11), (2, None))],
        [changes((2, 5)), changes((2, None)), changes((2, 6), (2, 7))],
        [changes((9, 9)), Truncation(TABLE.name), changes((4, 4))],
        [changes((8, 8))],
    )
    before = Runner(db, source).run(until_caught_up=True)
    assert (before.position, before.state) == ("4", State.FOLLOWING)
    assert rows(db) == {4: 4, 8: 8}
    assert len(db.commits("a")) == 5  # one for the copy, and one for each transaction
    assert source.confirmed[-1] == "4"


def test_a_later_run_continues_where_the_store_is(db: Database) -> None:
    source = Memory([changes((1, 10))])
    Runner(db, source).run(until_caught_up=True)
    db.table("a").upsert({"id": [1], "n": [77]})  # shows that the first transaction does not come again
    source.transactions.append([changes((2, 20))])
    Runner(db, source).run(until_caught_up=True)
    assert rows(db) == {1: 77, 2: 20, 3: 0, 4: 0, 5: 0, 6: 0}


def test_the_loser_of_two_runners_stops_and_nothing_is_applied_twice(db: Database) -> None:
    source = Memory([changes((1, 10))], [changes((1, 20), (7, 7))], [changes((7, None))])
    Runner(db, source).run(until_caught_up=True)
    source.transactions += [[changes((1, 30))], [changes((1, 40))]]
    rival = Memory(*source.transactions)

    def overtaken(number: int) -> None:
        if number == 4:  # this runner has read its position, and applied nothing yet
            Runner(db, rival).run(until_caught_up=True)
            db.table("a").upsert({"id": [1], "n": [99]})

    source.before_batch = overtaken
    with pytest.raises(ConflictError, match="another process has mirrored the source 'memory'"):
        Runner(db, source).run(until_caught_up=True)
    assert rows(db)[1] == 99
    assert len(db.table(POSITIONS).scan().to_arrow()) == 1


def test_a_copy_that_ends_early_leaves_nothing_and_begins_again(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Memory([changes((1, 10))])
    advance = Runner._advance

    def killed(self: Runner, *arguments: object) -> object:
        if arguments[0].rows:  # pyright: ignore[reportAttributeAccessIssue] - the copy, not the claim
            raise KeyboardInterrupt
        return advance(self, *arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Runner, "_advance", killed)
    with pytest.raises(KeyboardInterrupt):
        Runner(db, source).run(until_caught_up=True)
    assert rows(db) == {}
    [row] = db.table(POSITIONS).scan().to_arrow().to_pylist()
    assert (row["state"], row["memo"]) == ("copying", "memo 1")
    monkeypatch.undo()
    Runner(db, source).run(until_caught_up=True)
    assert source.abandoned == ["memo 1"]
    assert rows(db) == {1: 10, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0}


def test_a_source_that_is_away_for_a_while_is_tried_again(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "PAUSES_SECONDS", (0.0,))
    source = Memory([changes((1, 10))], [changes((2, 20))])
    source.unavailable = 3
    Runner(db, source).run(until_caught_up=True)
    assert rows(db)[1] == 10 and rows(db)[2] == 20
    source.transactions.append([changes((3, 30))])
    source.unavailable = 1_000_000
    with pytest.raises(UnavailableError, match="the source is away"):
        Runner(db, source, patience_seconds=0.1).run(until_caught_up=True)


def test_a_source_that_was_never_reached_is_an_error_at_once(db: Database) -> None:
    def away() -> list[SourceTable]:
        raise UnavailableError("no such host")

    source = Memory()
    source.tables = away
    with pytest.raises(UnavailableError, match="no such host"):
        Runner(db, source).run(until_caught_up=True)


def test_after_a_failure_transactions_come_one_by_one_for_a_while(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "_CAREFUL_TRANSACTIONS", 5)
    source = Memory(*([changes((1, n))] for n in range(1, 21)))
    failing, seconds = [10], []

    def fail(number: int) -> None:
        seconds.append(source.limits.seconds)
        if failing and number == failing[0]:
            failing.clear()
            raise SourceChangedError("a passing failure")

    source.before_batch = fail
    assert Runner(db, source).run(until_caught_up=True).position == "20"
    assert rows(db)[1] == 20
    assert 0.0 in seconds and seconds[-1] == BatchLimits().seconds


def test_a_stopped_run_ends_at_a_whole_transaction(db: Database) -> None:
    source = Memory(*([changes((1, n)), changes((2, n))] for n in range(1, 200)))
    runner = Runner(db, source)
    source.before_batch = lambda number: runner.stop() if number == 50 else None
    ended: list[str | None] = []
    thread = threading.Thread(target=lambda: ended.append(runner.run().position))
    thread.start()
    thread.join(60)
    assert ended and rows(db)[1] == rows(db)[2] == int(ended[0] or 0)


def test_two_tables_need_two_targets(db: Database) -> None:
    source = Memory()
    twice = [TABLE, TABLE.model_copy(update={"name": "there.b"})]
    source.tables = lambda: twice
    with pytest.raises(InvalidArgumentError, match=r"there\.a and there\.b would both be the table 'a'"):
        Runner(db, source).run(until_caught_up=True)


@pytest.mark.parametrize(
    ("narrow", "wide", "value"),
    [
        ("int32", "int64", 5),
        ("float", "double", np.float32(0.1).item()),
        ("decimal(4, 2)", "decimal(8, 2)", Decimal("1.50")),
    ],
)
def test_a_run_that_died_between_two_changes_of_a_column_is_repeated(
    db: Database, narrow: str, wide: str, value: object
) -> None:
    """The store has the columns of the second change when the first one comes again."""

    def with_column(kind: str) -> SourceTable:
        return TABLE.model_copy(update={"columns": [*TABLE.columns, SourceColumn(name="more", type=kind)]})

    def rows_of(kind: str, key: int) -> ChangedRows:
        table = with_column(kind)
        row = {"id": key, "n": key, "more": value}
        return ChangedRows(TABLE.name, pa.RecordBatch.from_pylist([row], schema=table.schema), np.array([False]))

    added = NewColumns(with_column(narrow), {"more": value})
    source = Memory([changes((1, 10)), added, rows_of(narrow, 2), NewColumns(with_column(wide)), rows_of(wide, 3)])
    source.dies_at = [1]
    with pytest.raises(InterruptedError):
        Runner(db, source).run(until_caught_up=True)
    before = db.table("a").schema.field("more").type
    assert Runner(db, source).run(until_caught_up=True).position == "1"
    table = db.table("a").scan(ordered=True).to_arrow()
    assert table.schema.field("more").type == before
    assert table["more"].to_pylist() == [value] * 6
    assert table["n"].to_pylist()[:3] == [10, 2, 3]
