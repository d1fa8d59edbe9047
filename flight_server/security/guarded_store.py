"""GuardedStore: a store as one caller may use it.

Every request passes through here, whichever way it came: so each kind is checked at one place. A request is checked
when it is made, and a running scan whenever the grants have changed since; so tickets, sessions and staged parts end
with the grants that they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.errors import PermissionDeniedError, StoreError
from ...schemas.protocol.request import meaning
from ...schemas.protocol.service import (
    AnswerKeeper,
    KeptAnswers,
    KeyReader,
    OneBatch,
    PendingResult,
    RowGatherer,
    RowPlanner,
    RowRelay,
    RowStamp,
    RowWriter,
    ScanStream,
    StoreService,
)
from ...schemas.protocol.verb import Verb
from ...schemas.protocol.verbs import Verbs
from ...schemas.rows.operation import Operation
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.scan_plan import ScanPlan
from ...schemas.rows.statement import Statement, StatementKind, without_keys
from ...schemas.rows.transaction import StagedBatch, StagedShape, StageResult, TransactionCommit, TransactionResult
from ...schemas.rows.write import WriteCommand, WriteResult
from ...schemas.store.description import Health, TableDescription, TableStats
from ...schemas.store.grants import Grant, GrantChange, Privilege, no_table
from ...schemas.store.pins import KeptPin
from ...schemas.store.placement import Placement
from ...schemas.table.names import ALL_TABLES
from ...schemas.table.table import WEEK_SECONDS
from . import needs, rules
from .audit import AuditLog
from .own_writers import OwnWriters
from .rights import NONE, Caller, GrantBook, Rights, TableRights
from .rules import AUDITED, told_of
from .shown_stats import shown_stats
from .watched import Watched

Item = TypeVar("Item")
_SHOWN = 5


class GuardedStore(Verbs, KeyReader, RowWriter):
    """The store as one caller may use it by its grants: a ``StoreService``, without ``close``. Thread safe."""

    def __init__(self, store: StoreService, caller: Caller, book: GrantBook, audit: AuditLog | None) -> None:
        self._store = store
        self._caller = caller
        self._book = book
        self._audit = audit
        self._known: tuple[object, Rights] | None = None
        self._own = OwnWriters(caller.user, lambda: self.rights.is_admin)
        self._relay = store if isinstance(store, RowRelay) else None

    @property
    def rights(self) -> Rights:
        """What the caller may do now."""
        return self._rights_now()[1]

    def _rights_now(self) -> tuple[object, Rights]:
        """Return the version of the grants, and what the caller may do by them, or by later ones."""
        known, version = self._known, self._book.version()
        if known is None or known[0] != version:
            known = self._known = version, self._book.rights(self._caller, version)
        return known

    def _consistent(self, check: Callable[[], object]) -> Rights:
        """Check something while no name changes its table, and return the rights of then."""
        while True:
            version, rights = self._rights_now()
            check()
            if self._rights_now()[0] == version:
                return rights

    # Actions

    def perform(self, verb: Verb, *args: Any, **named: Any) -> Any:
        """Check what an action needs, and let the store perform it."""
        action, asked = verb.method, args[0] if args else next(iter(named.values()), None)
        meant = self._consistent(lambda: rules.check(self, verb, asked)).meant(rules.table_of(asked))
        if action not in AUDITED:
            with meaning(meant):
                return getattr(self._store, action)(*args, **named)
        outcome = "INTERNAL"
        try:
            with meaning(meant):
                answer = getattr(self._store, action)(*args, **named)
            outcome = "ok"
            return answer
        except StoreError as error:
            outcome = error.code
            raise
        finally:
            self._book.changed()
            if self._audit is not None:
                self._audit.note(self._caller.user, action, outcome, **told_of(action, asked))

    def drop_table(self, name: str, keep_seconds: int = 0) -> None:
        """See StoreService. Who keeps its files for long holds space of all tables."""
        if keep_seconds > WEEK_SECONDS:
            self.need(name, Privilege.MAINTAIN, "drop_table")
        super().drop_table(name, keep_seconds)

    def tables(self) -> list[str]:
        """See StoreService. Those on which the caller has any grant."""
        rights = self.rights
        names = self._store.tables()
        return names if rights.everywhere else [name for name in names if name in rights.tables]

    def health(self) -> Health:
        """See StoreService. Only administrators learn how to reach the processes, and so what is wrong with these; that
        the audit log fails; and of damage and failing maintenance outside of the tables that they see."""
        found, rights = self._store.health(), self.rights
        if rights.is_admin:
            lost = self._audit.failure if self._audit else ""
            return found.degraded(lost) if lost else found
        seen = [each for each in found.damaged if each.table is not None and rights.of(each.table).privileges]
        failing = [each for each in found.failing if each.table and rights.of(each.table).privileges]
        reason = "" if found.processes else found.reason
        return found.model_copy(update={"damaged": seen, "failing": failing, "processes": {}, "reason": reason})

    def grants(self) -> list[Grant]:
        """See StoreService. To others than administrators: their own, and all on tables that they administer."""
        return self._shown(self._store.grants())

    def grant(self, change: GrantChange) -> list[Grant]:
        """See StoreService. Answers what ``grants`` would show."""
        return self._shown(super().grant(change))

    def revoke(self, change: GrantChange) -> list[Grant]:
        """See StoreService. Answers what ``grants`` would show."""
        return self._shown(super().revoke(change))

    def _shown(self, grants: list[Grant]) -> list[Grant]:
        return list(filter(self.rights.shows, grants))

    def commits(self, table: str, since: int | str | None = None) -> pa.Table:
        """See StoreService. Who knows the names of writers and transactions can take the place of their next writes: so
        only administrators of the table learn them. Likewise the users, but for the caller's own commits."""
        before = self.rights
        found = super().commits(table, since)
        if all(rights.of(table).has(Privilege.ADMIN) for rights in (before, self.rights)):
            return found
        for name in ("writer", "transaction"):
            field = found.schema.field(name)
            nothing = pa.nulls(found.num_rows, field.type)
            found = found.set_column(found.schema.get_field_index(name), field, nothing)
        own = pc.if_else(pc.equal(found["user"], self._caller.user), found["user"], None)
        return found.set_column(found.schema.get_field_index("user"), found.schema.field("user"), own)

    def table_stats(self, name: str) -> TableStats:
        """See StoreService. Without what needs ``read`` on columns that the caller may not read, before or after."""
        before = self.rights
        return shown_stats(shown_stats(super().table_stats(name), before), self.rights)

    def pins(self) -> list[KeptPin]:
        """See StoreService. Those that the caller may open: of tables that it may read."""
        rights = self.rights
        return [each for each in self._store.pins() if rights.by_id(each.pin_id).of(Privilege.READ) is None]

    def placement(self) -> Placement:
        """See StoreService. That of several processes has their sockets: only administrators learn it."""
        if not self.rights.is_admin and self._store.health().processes:
            raise self._denied(ALL_TABLES, Privilege.ADMIN, "placement", told={})
        return super().placement()

    def staged_parts(self, transaction: str) -> list[StagedShape]:
        """See StoreService. Of the tables that the caller sees."""
        return [each for each in self._store.staged_parts(transaction) if self.rights.of(each.table).privileges]

    def commit_transaction(self, commit: TransactionCommit) -> TransactionResult:
        """See StoreService. The caller must be allowed to write all of its parts now; for one without any, to write
        something: others with the same name, or an older version of the application, would not be applied any more."""
        rights = self._consistent(lambda: self._check_commit(commit, "commit_transaction"))
        with meaning(rights.meant(commit.truncate)):
            return self._store.commit_transaction(commit)

    def _check_commit(self, commit: TransactionCommit, action: str) -> None:
        for table in commit.truncate:
            self.need(table, Privilege.DELETE, action)
        self._check_parts(commit.transaction, action)
        if not self.rights.may_write:
            raise self._denied("", Privilege.INSERT, action, told={"transaction": commit.transaction})

    def abort_transaction(self, transaction: str) -> None:
        """See StoreService. Who may commit a transaction may abort it."""
        self._consistent(lambda: self._check_parts(transaction, "abort_transaction"))
        self._store.abort_transaction(transaction)

    def _check_parts(self, transaction: str, action: str) -> None:
        if self.rights.is_admin:
            return
        for each in self._store.staged_parts(transaction):
            if each.table and not self.rights.of(each.table).privileges:
                self._note_denial(action, {"table": each.table, "transaction": transaction})
                raise PermissionDeniedError(
                    f"user {self._caller.user!r} may not write all parts of transaction {transaction!r}: ask an "
                    "administrator to commit or abort it"
                )
            if each.table:
                self._check_write(each.table, each.operation, each.columns, action)

    def execute(self, statement: Statement) -> WriteResult:
        """See StoreService. A condition or an expression reads the columns that it names; errors tell keys."""
        table, about = self.seen(statement.table, "execute"), None
        if statement.kind is StatementKind.UPDATE:
            about = self.check(table, Privilege.UPDATE, "execute", lambda _: {*statement.set})
        else:
            self.check(table, Privilege.DELETE, "execute")
        if statement.kind is StatementKind.RESTORE:
            for privilege in (Privilege.INSERT, Privilege.UPDATE, Privilege.READ):
                about = self.check(table, privilege, "execute", needs.all_columns, about=about)
        elif table.of(Privilege.READ) is not None and (names := needs.read_by_statement(statement)):
            about = self.check(table, Privilege.READ, "execute", lambda _: names, about=about)
        if statement.writer is not None:
            statement = statement.model_copy(update={"writer": self._own.name(statement.writer)})
        with table.meaning(about):
            done = self._store.execute(statement)
        return without_keys(done) if done.errors and not self._reads_key(table) else done

    def _reads_key(self, table: TableRights) -> bool:
        if table.of(Privilege.READ) is None:
            return True
        about = self._store.describe_table(table.table)
        return not table.lacking(Privilege.READ, about.primary_key, about)

    # Reads

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService. Checks all columns that the scan reads: by their names before it begins, and then by their
        numbers, since names may change before and while it runs."""
        version, rights = self._rights_now()
        asked, _ = self._allowed(spec, "scan", rights)
        return self._watched(asked, self._store.scan(asked), version, rights)

    def _watched(self, asked: ScanSpec, found: ScanStream, version: object, rights: Rights) -> ScanStream:
        """Return a stream that these rights allow; it is checked again when the grants have another version."""

        def check() -> None:
            nonlocal version
            newer, rights = self._rights_now()
            if newer != version:
                self._check_running(asked, found, rights)
                version = newer

        if found.source is not None:
            self._check_running(asked, found, rights)
        if isinstance(found.batches, OneBatch):  # all of it has been read, and is sent as it is
            check()
            return found
        marked = None if found.marked is None else Watched(found.marked, check)
        return replace(found, batches=Watched(found.batches, check), marked=marked)

    def _check_running(self, spec: ScanSpec, found: ScanStream, rights: Rights) -> None:
        """Raise unless a caller with these rights may go on with a scan. Only the process that scans knows the numbers
        of what it reads; elsewhere the names of today count."""
        if found.source is None:
            self._allowed(spec, "scan", rights, is_begun=True)
            return
        table_id, schema = found.source
        readable = rights.readable(table_id)
        if readable is None:
            return
        if not readable:
            found.close()
            self._seen_by(rights, spec.table, "scan")
            raise self._denied(spec.table, Privilege.READ, "scan")
        by_name = schema.by_name
        names = needs.read_by_scan(spec, by_name, (column.name for column in schema.key))
        if lacking := sorted(name for name in names if name in by_name and by_name[name].id not in readable):
            found.close()
            raise self._denied(spec.table, Privilege.READ, "scan", lacking)

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService."""
        rights = self.rights
        allowed, about = self._allowed(spec, "plan", rights)
        with rights.of(spec.table).meaning(about):
            return self._store.plan(allowed)

    def look_up(self, table: str, keys: pa.RecordBatch) -> ScanStream:
        """See StoreService. It returns all columns, and so needs all."""
        version, rights = self._rights_now()
        with self._check_get(table).meaning():
            found = self._store.look_up(table, keys)
        self._check_get(table)  # a column may have come meanwhile
        return self._watched(ScanSpec(table=table), found, version, rights)

    def get_row(self, table: TableDescription, key: Sequence[Any]) -> dict[str, Any] | None:
        """See StoreService."""
        return self._got(table, lambda: self._store.get_row(table, key))

    def _got(self, table: TableDescription, read: Callable[[], Item]) -> Item:
        version, _ = self._rights_now()
        with self._check_get(table.name).meaning():
            row = read()
        if self._rights_now()[0] != version:
            self._check_get(table.name)  # as in ``get``
        return row

    def kept_answers(self) -> tuple[KeptAnswers, Caller] | None:
        """See AnswerKeeper."""
        pair = self._store.kept_answers() if isinstance(self._store, AnswerKeeper) else None
        return pair and (pair[0], self._caller)

    def stamped_row(self, table: TableDescription, key: Sequence[Any]) -> tuple[dict[str, Any] | None, RowStamp | None]:
        """See AnswerKeeper. For a store that keeps answers."""
        return self._got(table, lambda: cast(AnswerKeeper, self._store).stamped_row(table, key))

    def told_row(self, table: str, key: Sequence[Any]) -> dict[str, Any] | None:
        """See RowRelay."""
        if self._relay is None:
            return None
        self._check_get(table)
        answer = self._relay.told_row(table, key)
        self._check_get(table)  # as in ``get``
        return answer

    def _check_get(self, name: str) -> TableRights:
        table = self.seen(name, "get")
        self.check(table, Privilege.READ, "get", needs.all_columns)
        return table

    def _allowed(
        self, spec: ScanSpec, action: str, rights: Rights, is_begun: bool = False
    ) -> tuple[ScanSpec, TableDescription | None]:
        """Return a scan without what would show keys that a caller with these rights may not read, and by what its
        columns were checked. ``is_begun``: it has found all of them.

        Raises:
            NotFoundError: the caller does not see the table.
            PermissionDeniedError: the caller may not read a column that it reads.
        """
        table = self._seen_by(rights, spec.table, action)
        if table.of(Privilege.READ) is None:
            return spec, None

        def read(about: TableDescription) -> set[str]:
            return needs.read_by_scan(spec, needs.all_columns(about), about.primary_key)

        about = self.check(table, Privilege.READ, action, read, is_begun=is_begun)
        if about is None or not table.lacking(Privilege.READ, about.primary_key, about) or needs.has_keys(spec):
            return spec, about
        return spec.model_copy(update={"marks": False, "split_bytes": None}), about

    # Writes

    def begin_write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> PendingResult:
        """See StoreService. The rules of a merge read and change the columns that they name."""
        columns = [*batch.schema.names, *(command.rules or ())]
        with self._check_write(command.table, command.op, columns, rules=command.rules):
            return self._store.begin_write(self._own.command(command), batch, seq)

    def write_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None = None) -> WriteResult | None:
        """See RowWriter."""
        with self._check_write(command.table, command.op, row):
            return self._store.write_row(self._own.command(command), row, seq)

    def begin_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None = None) -> PendingResult | None:
        """See RowWriter."""
        with self._check_write(command.table, command.op, row):
            return self._store.begin_row(self._own.command(command), row, seq)

    def planned_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None) -> object | None:
        """See RowPlanner. For a store that has a gatherer."""
        with self._check_write(command.table, command.op, row):
            return cast(RowPlanner, self._store).planned_row(self._own.command(command), row, seq)

    def gatherer(self) -> RowGatherer | None:
        """See RowPlanner."""
        return self._store.gatherer() if isinstance(self._store, RowPlanner) else None

    def stage(self, command: WriteCommand, batches: Iterable[StagedBatch]) -> StageResult:
        """See StoreService. Each batch has an operation of its own."""
        table = self.seen(command.table, "stage")
        for privilege in needs.WRITTEN[command.op.base]:
            self.check(table, privilege, "stage")
        with table.meaning():
            return self._store.stage(command, self._stageable(command, batches))

    def _stageable(self, command: WriteCommand, batches: Iterable[StagedBatch]) -> Iterator[StagedBatch]:
        for each in batches:
            self._check_write(command.table, each.op or command.op, each.batch.schema.names, "stage")
            yield each

    def _check_write(
        self,
        name: str,
        op: Operation,
        columns: Iterable[str],
        action: str = "write",
        rules: Mapping[str, str] | None = None,
    ) -> meaning:
        """Return what names mean then. ``rules`` of a merge read columns, and may keep some for new rows only."""
        table, about = self.seen(name, action), None
        for privilege in needs.WRITTEN[op.base]:
            if table.privileges.get(privilege, NONE) is not None:
                kept = needs.kept_by_rules(rules) if rules and privilege is Privilege.UPDATE else ()
                names = [each for each in columns if each not in kept]
                needed = partial(needs.written, privilege, names)
                about = self.check(table, privilege, action, needed, about=about)
        if rules and (read := needs.read_by_rules(rules)):
            about = self.check(table, Privilege.READ, action, lambda _: read, about=about)
        return table.meaning(about)

    # Checks

    def seen(self, name: str, action: str) -> TableRights:
        """Return the rights on a table. Raises NotFoundError, as for a missing one, if there are none."""
        return self._seen_by(self.rights, name, action)

    def _seen_by(self, rights: Rights, name: str, action: str) -> TableRights:
        table = rights.of(name)
        if not table.privileges:
            self._note_denial(action, {"table": name})
            raise no_table(name, sorted(rights.tables))
        return table

    def need(self, name: str, privilege: Privilege, action: str, told: Mapping[str, Any] | None = None) -> None:
        """Raise unless the caller has a privilege on the whole of a table, or on ``ALL_TABLES``. ``told`` is what the
        audit log has of a request that is denied; None: the table."""
        table = TableRights(name, self.rights.everywhere) if name == ALL_TABLES else self.seen(name, action)
        self.check(table, privilege, action, needs.all_columns, told)

    def need_by_id(self, name: str, privilege: Privilege, action: str) -> None:
        """Raise unless the caller has a privilege on the whole table of an import, a pin or a compaction."""
        self.check(self.rights.by_id(name), privilege, action, needs.all_columns, {"id": name})

    def check(
        self,
        table: TableRights,
        privilege: Privilege,
        action: str,
        needed: Callable[[TableDescription], set[str]] | None = None,
        told: Mapping[str, Any] | None = None,
        is_begun: bool = False,
        about: TableDescription | None = None,
    ) -> TableDescription | None:
        """Check a privilege on the columns that ``needed`` tells of the table's; None: on any column. Return the
        table's description if it was asked for, or ``about``: all checks of a request go by one. ``is_begun``: a column
        that is not there was, under this name.

        Raises:
            PermissionDeniedError: it is lacking; the message names the columns.
        """
        if table.of(privilege) is None:
            return about
        if not table.has(privilege) or (needed is not None and table.table == ALL_TABLES):
            raise self._denied(table.table, privilege, action, told=told)
        if needed is None:
            return about
        about = about or self._store.describe_table(table.table)
        wanted = needed(about)
        if not is_begun:
            wanted &= needs.all_columns(about)  # one that is not there is the store's to tell
        if lacking := table.lacking(privilege, wanted, about):
            raise self._denied(table.table, privilege, action, lacking, told)
        return about

    def _denied(
        self,
        table: str,
        privilege: Privilege,
        action: str,
        columns: Sequence[str] = (),
        told: Mapping[str, Any] | None = None,
    ) -> StoreError:
        self._note_denial(action, {"table": table} if told is None else told)
        what = {ALL_TABLES: "all tables", "": "any table"}.get(table, f"table {table!r}")
        if columns:
            names = ", ".join(map(repr, columns[:_SHOWN])) + (" ..." if len(columns) > _SHOWN else "")
            what = f"column{'s' if len(columns) > 1 else ''} {names} of {what}"
        return PermissionDeniedError(
            f"user {self._caller.user!r} has no grant to {privilege} on {what}: ask an administrator for it"
        )

    def _note_denial(self, action: str, told: Mapping[str, Any]) -> None:
        if self._audit is not None:
            self._audit.note(self._caller.user, action, "denied", **told)

    def unnoted(self) -> GuardedStore:
        """Return the same, for what the caller did not ask for itself: denials go to no audit log."""
        return GuardedStore(self._store, self._caller, self._book, None)
