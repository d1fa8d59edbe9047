"""TransactionMemory: the committed transactions and versions of applications, so that none is applied twice.

Both stand in the log record of their commit, as a note. Before the part of the log that holds one of them is freed, all
are logged once more, as one note at the log's end: so the log alone is enough to remember them after a restart, as for
the answers to numbered writes (`numbered_writes`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...schemas.errors import CorruptionError
from ...schemas.transaction import TransactionResult
from ..record.log_note import Note, NoteKind

TRANSACTIONS_KEPT = 4096
APPLICATIONS_KEPT = 4096
"""In a store; those that committed longest ago are forgotten first."""


class CommittedTransaction(BaseModel):
    """A transaction in the log; ``timestamp`` is that of its record."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    transaction: str
    timestamp: int = 0
    rows: int
    applied: int
    ignored: int = 0
    truncated: int = 0

    @property
    def result(self) -> TransactionResult:
        """The answer to its commit."""
        return TransactionResult(**self.model_dump(exclude={"transaction"}))


class CommittedVersion(BaseModel):
    """The newest version that an application has committed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    app_id: str
    app_version: int
    timestamp: int = 0


Stamped = TypeVar("Stamped", CommittedTransaction, CommittedVersion)


class _Told(BaseModel):
    """The body of a note."""

    model_config = ConfigDict(extra="forbid")

    transactions: list[CommittedTransaction] = Field(default_factory=list)
    applications: list[CommittedVersion] = Field(default_factory=list)


def note_of(transaction: CommittedTransaction, version: CommittedVersion | None) -> Note:
    """Return what the log record of a commit says of it."""
    told = _Told(transactions=[transaction], applications=[version] if version else [])
    return Note(0, NoteKind.TRANSACTIONS, told.model_dump_json(exclude_defaults=True).encode())


class TransactionMemory:
    """What is remembered of a store's transactions. Thread safe."""

    def __init__(self, transactions_kept: int = TRANSACTIONS_KEPT, applications_kept: int = APPLICATIONS_KEPT) -> None:
        self._transactions_kept = transactions_kept
        self._applications_kept = applications_kept
        self._transactions: OrderedDict[str, CommittedTransaction] = OrderedDict()
        self._applications: OrderedDict[str, CommittedVersion] = OrderedDict()
        self._logged_from: int | None = None
        """The log from here on tells of all of them; None: there are none."""
        self._begun: set[tuple[str, str]] = set()
        self._changed = threading.Condition(threading.RLock())

    @contextmanager
    def alone(self, transaction: str, app_id: str | None) -> Iterator[None]:
        """Let no other commit of this transaction, or of this application, run while the body does."""
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
        """Return a transaction that was committed; None for one that was not, or is forgotten."""
        with self._changed:
            return self._transactions.get(name)

    def by_timestamp(self) -> dict[int, str]:
        """Return the transactions that are remembered, by the timestamp of their commit."""
        with self._changed:
            return {each.timestamp: name for name, each in self._transactions.items()}

    def version(self, app_id: str) -> CommittedVersion | None:
        """Return the newest version of an application that was committed."""
        with self._changed:
            return self._applications.get(app_id)

    @contextmanager
    def logging(self) -> Iterator[Callable[[CommittedTransaction, CommittedVersion | None, int], None]]:
        """Lend a function that remembers a commit by the position of its record, which the body logs.

        The log is not freed in between: the commit need not touch a tablet whose lock would see to that.
        """
        with self._changed:
            yield self._keep

    def _keep(self, transaction: CommittedTransaction, version: CommittedVersion | None, lsn: int) -> None:
        self._put(_Told(transactions=[transaction], applications=[version] if version else []), lsn)

    def restore(self, note: Note, lsn: int, timestamp: int) -> None:
        """Take over what log record ``lsn`` says. Raises CorruptionError when it cannot be understood."""
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
        """Give a note of all that the log before ``lsn`` tells, None if that is nothing; the body logs it.

        The body appends the position of the note to the list; without one everything stays as if nothing was saved.
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
