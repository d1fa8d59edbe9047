"""TransactionMemory: committed transactions and application versions, so that none is applied twice.

The log record of a commit holds both as a note. Before a part of the log with such a note is freed, all are logged
again, as one note at the end of the log. So the log alone restores them after a restart, as with the answers to
numbered writes (`numbered_writes`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from ...schemas.errors import CorruptionError
from ...schemas.message import Message, new_list
from ...schemas.rows.transaction import TransactionResult
from .. import threads
from ..record.log_note import Note, NoteKind

TRANSACTIONS_KEPT = 4096
APPLICATIONS_KEPT = 4096
"""The most in a store; the oldest commits are forgotten first."""


class CommittedTransaction(Message, frozen=True, extra="forbid"):
    """A committed transaction in the log; ``timestamp`` is that of its record."""

    transaction: str
    timestamp: int = 0
    rows: int
    applied: int
    ignored: int = 0
    stale: int = 0
    truncated: int = 0
    cells_truncated: int = 0
    replaced: int = 0

    @property
    def result(self) -> TransactionResult:
        """The answer to its commit."""
        return TransactionResult(**self.model_dump(exclude={"transaction"}))


class CommittedVersion(Message, frozen=True, extra="forbid"):
    """The newest version that an application committed by a transaction."""

    app_id: str
    app_version: int
    timestamp: int = 0


Stamped = TypeVar("Stamped", CommittedTransaction, CommittedVersion)


class _Told(Message, extra="forbid"):
    """The body of a note."""

    transactions: list[CommittedTransaction] = Field(default_factory=new_list)
    applications: list[CommittedVersion] = Field(default_factory=new_list)


def note_of(transaction: CommittedTransaction, version: CommittedVersion | None) -> Note:
    """Return the note of a transaction for the log record of its commit."""
    told = _Told(transactions=[transaction], applications=[version] if version else [])
    return Note(0, NoteKind.TRANSACTIONS, told.model_dump_json(exclude_defaults=True).encode())


class TransactionMemory:
    """The remembered transactions of a store. Thread safe."""

    def __init__(self, transactions_kept: int = TRANSACTIONS_KEPT, applications_kept: int = APPLICATIONS_KEPT) -> None:
        self._transactions_kept = transactions_kept
        self._applications_kept = applications_kept
        self._transactions: OrderedDict[str, CommittedTransaction] = OrderedDict()
        self._applications: OrderedDict[str, CommittedVersion] = OrderedDict()
        self._logged_from: int | None = None
        """The log from this position on restores all of them; None: there are none."""
        self._begun: set[tuple[str, str]] = set()
        self._changed = threads.Condition(threads.RLock())

    @contextmanager
    def alone(self, transaction: str, app_id: str | None) -> Iterator[None]:
        """Keep out other commits of this transaction or application while the body runs."""
        claims = {("transaction", transaction)} | ({("application", app_id)} if app_id is not None else set())
        with self._changed:
            self._changed.wait_for(lambda: not claims & self._begun)
            self._begun |= claims
        try:
            yield
        finally:
            with self._changed:
                self._begun -= claims
                self._changed.notify_all()

    def transaction(self, name: str) -> CommittedTransaction | None:
        """Return a committed transaction; None if it was not committed, or is forgotten."""
        with self._changed:
            return self._transactions.get(name)

    def by_timestamp(self) -> dict[int, str]:
        """Return the remembered transactions by commit timestamp."""
        with self._changed:
            return {each.timestamp: name for name, each in self._transactions.items()}

    def version(self, app_id: str) -> CommittedVersion | None:
        """Return the newest version that an application committed."""
        with self._changed:
            return self._applications.get(app_id)

    @contextmanager
    def logging(self) -> Iterator[Callable[[CommittedTransaction, CommittedVersion | None, int], None]]:
        """Yield a function that remembers a commit by the position of its record, which the body logs.

        The log is not freed in between: the commit may touch no tablet whose lock would prevent that.
        """
        with self._changed:
            yield self._keep

    def _keep(self, transaction: CommittedTransaction, version: CommittedVersion | None, lsn: int) -> None:
        self._put(_Told(transactions=[transaction], applications=[version] if version else []), lsn)

    def restore(self, note: Note, lsn: int, timestamp: int) -> None:
        """Apply log record ``lsn``. Raises CorruptionError if it cannot be decoded."""
        try:
            told = _Told.model_validate_json(note.body)
        except ValidationError as error:
            raise CorruptionError("wal", 0, f"log record {lsn}: {error}") from error
        stamped = _Told(
            transactions=[_stamped(each, timestamp) for each in told.transactions],
            applications=[_stamped(each, timestamp) for each in told.applications],
        )
        with self._changed:
            self._put(stamped, lsn)

    @contextmanager
    def saved_before(self, lsn: int) -> Iterator[tuple[Note | None, list[int]]]:
        """Yield a note of all that the log before ``lsn`` holds, None if nothing; the body logs it.

        The body appends the position of the note to the list, once it is durable; without it, nothing counts as saved.
        """
        positions: list[int] = []
        with self._changed:
            is_told = self._logged_from is None or self._logged_from >= lsn
            every = _Told(
                transactions=list(self._transactions.values()), applications=list(self._applications.values())
            )
            note = Note(0, NoteKind.TRANSACTIONS, every.model_dump_json(exclude_defaults=True).encode())
            yield None if is_told else note, positions
            if positions:
                self._logged_from = positions[0]

    def _put(self, told: _Told, lsn: int) -> None:
        self._logged_from = lsn if self._logged_from is None else self._logged_from
        for transaction in told.transactions:
            self._transactions[transaction.transaction] = transaction
            self._transactions.move_to_end(transaction.transaction)
        for version in told.applications:
            known = self._applications.get(version.app_id)
            if known is None or known.app_version < version.app_version:
                self._applications[version.app_id] = version
            self._applications.move_to_end(version.app_id)
        _trim(self._transactions, self._transactions_kept)
        _trim(self._applications, self._applications_kept)


def _stamped(told: Stamped, timestamp: int) -> Stamped:
    return told if told.timestamp else told.model_copy(update={"timestamp": timestamp})


def _trim(kept: OrderedDict[str, Any], count: int) -> None:
    while len(kept) > count:
        kept.popitem(last=False)
