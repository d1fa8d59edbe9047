"""What a source has staged is discarded as soon as nobody will commit it, and not before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from nyala import (
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
    RowErrors,
    StorageFullError,
    StoreError,
    UnavailableError,
)
from nyala.clients.api.database import Database
from nyala.clients.sources.staging import StagedCommit
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.transaction import TransactionCommit, TransactionResult
from nyala.sources import BatchLimits, Runner, SourceBatch, SourceTable
from tests.clients.sources.test_runner import Memory, changes

ROWS = pa.table({"id": [1, 2], "n": [3, 4]})


def lost() -> UnavailableError:
    error = UnavailableError("the connection broke")
    error.answer_is_lost = True
    return error


def staged(db: Database, monkeypatch: pytest.MonkeyPatch, answer: StoreError | None) -> StagedCommit:
    """Rows that are staged for a commit that a store refuses."""

    def refuse(commit: TransactionCommit) -> TransactionResult:
        assert answer is not None
        raise answer

    db.create_table("a", primary_key="id", data=ROWS)
    staging = StagedCommit(db._store)
    staging.write(db._store.describe_table("a"), ROWS, Operation.INSERT)
    if answer is not None:
        service = SimpleNamespace(commit_transaction=refuse, abort_transaction=db._store.abort_transaction)
        monkeypatch.setattr(staging, "_service", service)
    assert db._store.staged_parts(staging._id)
    return staging


@pytest.mark.parametrize(
    "answer",
    [ConflictError("again"), NotFoundError("it was dropped"), PermissionDeniedError("no"), StorageFullError("full")],
    ids=lambda answer: answer.code,
)
def test_a_refused_commit_leaves_nothing(db: Database, monkeypatch: pytest.MonkeyPatch, answer: StoreError) -> None:
    staging = staged(db, monkeypatch, answer)
    with pytest.raises(type(answer)):
        staging.commit()
    assert not db._store.staged_parts(staging._id)


def test_refused_rows_leave_nothing(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = staged(db, monkeypatch, None)
    with pytest.raises(RowErrors):
        staging.commit()
    assert not db._store.staged_parts(staging._id)


@pytest.mark.parametrize("answer", [lost(), UnavailableError("come again", 1.0)], ids=["lost", "later"])
def test_a_commit_whose_outcome_is_unknown_stays(
    db: Database, monkeypatch: pytest.MonkeyPatch, answer: StoreError
) -> None:
    staging = staged(db, monkeypatch, answer)
    db.table("a").delete({"id": [1, 2]})
    with pytest.raises(UnavailableError):
        staging.commit()
    monkeypatch.undo()
    assert staging.commit().applied == 2


class Breaking(Memory):
    """Breaks in the middle of its second transaction, once."""

    def __init__(self, error: Exception) -> None:
        super().__init__([changes((1, 10))], [changes((2, 20)), changes((3, 30))])
        self._errors = [error]

    def changes(
        self, memo: str, tables: Sequence[SourceTable], after: str, limits: BatchLimits
    ) -> Iterator[SourceBatch]:
        for batch in super().changes(memo, tables, after, limits):
            yield batch
            if self._errors and batch.steps and batch.steps[0] is self.transactions[1][0]:
                raise self._errors.pop()


@contextmanager
def transactions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of all transactions that are staged in the body."""
    names: list[str] = []
    real = StagedCommit.write

    def noted(self: StagedCommit, *given: Any) -> Any:
        names.append(self._id)
        return real(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(StagedCommit, "write", noted)
        yield names


@pytest.mark.parametrize("error", [UnavailableError("away"), ValueError("broken")], ids=["for a while", "for good"])
def test_half_a_transaction_of_a_source_that_breaks_is_discarded(
    db: Database, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    source = Breaking(error)
    with transactions(monkeypatch) as names:
        if isinstance(error, UnavailableError):
            assert Runner(db, source).run(until_caught_up=True).position == "2"
        else:
            with pytest.raises(ValueError, match="broken"):
                Runner(db, source).run(until_caught_up=True)
    assert len(set(names)) > 3
    assert not any(db._store.staged_parts(name) for name in set(names))
