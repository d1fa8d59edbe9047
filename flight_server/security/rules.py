"""Rules: checks the need of a verb, and looks into those requests whose content decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...schemas.protocol.need import Scope
from ...schemas.protocol.verb import Verb
from ...schemas.store.bulk import ImportCommit, ImportMode
from ...schemas.store.grants import GrantChange, Privilege
from ...schemas.store.maintenance import PauseMaintenance
from ...schemas.store.pins import CreatePin, OpenPin
from ...schemas.table.alter import Alteration, RenameTable, SetOption
from ...schemas.table.names import ALL_TABLES
from ...schemas.table.table import QUOTAS, UPKEEP, WEEK_SECONDS, TableDefinition
from .rights import TableRights


class RightsGuard(Protocol):
    """Checks the rights of one caller. Every method raises unless they suffice, or the caller does not see the
    table."""

    def seen(self, name: str, action: str) -> TableRights:
        """Return the rights on a table."""
        ...

    def check(self, table: TableRights, privilege: Privilege, action: str) -> object:
        """Check a privilege on any column of a table."""
        ...

    def need(self, name: str, privilege: Privilege, action: str, told: Mapping[str, Any] | None = None) -> None:
        """Check a privilege on the whole of a table, or on ``ALL_TABLES``. ``told`` is for the audit log."""
        ...

    def need_by_id(self, name: str, privilege: Privilege, action: str) -> None:
        """Check a privilege on the whole table of an import, a pin or a compaction."""
        ...


Rule = Callable[[RightsGuard, str, Any], None]
"""Raises unless a caller may do an action with this first argument."""


def check(guard: RightsGuard, verb: Verb, asked: Any) -> None:
    """Raise unless a caller has the rights to do a verb with this first argument. What only a ``GuardedStore`` decides
    is for administrators, should it come here."""
    action, need = verb.method, verb.needs
    if need.privilege is None:
        if need.scope is Scope.VISIBLE_TABLE:
            guard.seen(asked, action)
        elif need.scope is not Scope.NOTHING:
            CONTENT_RULES.get(action, _admins)(guard, action, asked)
    elif need.scope is Scope.ANY_COLUMN:
        guard.check(guard.seen(asked, action), need.privilege, action)
    elif need.scope is Scope.TABLE:
        guard.need(_table(asked), need.privilege, action)
    elif need.scope is Scope.TABLE_OF_ID:
        guard.need_by_id(_id(asked), need.privilege, action)
    else:
        guard.need(ALL_TABLES, need.privilege, action, told_of(action, asked))


def table_of(asked: Any) -> list[str]:
    """Return the name of the table that an action with this first argument is about, if it has one. A name of another
    kind may be among them: no table is looked up by it."""
    name = asked if isinstance(asked, str) else getattr(asked, "table", None)
    return [name] if isinstance(name, str) else []


def _create_table(guard: RightsGuard, action: str, asked: TableDefinition) -> None:
    """Rows that nobody flushes hold memory and log, and a long history the disk, of all tables."""
    guard.need(ALL_TABLES, Privilege.ALTER, action, told_of(action, asked))
    if asked.options.takes_more:
        guard.need(ALL_TABLES, Privilege.MAINTAIN, action, told_of(action, asked))


def _alter(guard: RightsGuard, action: str, asked: Alteration) -> None:
    """A new name may be that of a hidden table, which the error would tell. Who is limited by a quota does not set
    it. A shorter history removes what others may read."""
    guard.need(asked.table, Privilege.ALTER, action)
    options = {step.option for step in asked.steps if isinstance(step, SetOption)}
    if not options.isdisjoint(QUOTAS):
        guard.need(asked.table, Privilege.ADMIN, action)
    if not options.isdisjoint(UPKEEP):
        guard.need(asked.table, Privilege.MAINTAIN, action)
    for step in asked.steps:
        if isinstance(step, RenameTable):
            guard.need(ALL_TABLES, Privilege.ALTER, action, told_of(action, asked))
            if step.keep_seconds > WEEK_SECONDS:
                guard.need(ALL_TABLES, Privilege.MAINTAIN, action, told_of(action, asked))


def _create_pin(guard: RightsGuard, action: str, asked: CreatePin) -> None:
    """It holds space for as long as it likes."""
    guard.need(ALL_TABLES if asked.table is None else asked.table, Privilege.MAINTAIN, action, told_of(action, asked))


def _import_commit(guard: RightsGuard, action: str, asked: ImportCommit) -> None:
    guard.need_by_id(asked.import_id, Privilege.INSERT, action)
    if asked.mode is ImportMode.UPSERT:
        guard.need_by_id(asked.import_id, Privilege.UPDATE, action)


def _table(asked: Any) -> str:
    return asked if isinstance(asked, str) else asked.table


def _id(asked: Any) -> str:
    if isinstance(asked, str):
        return asked
    return asked.pin_id if isinstance(asked, OpenPin) else asked.compaction_id


def _admins(guard: RightsGuard, action: str, asked: Any) -> None:
    guard.need(ALL_TABLES, Privilege.ADMIN, action, told_of(action, asked))


CONTENT_RULES: dict[str, Rule] = {
    "create_table": _create_table,
    "alter_table": _alter,
    "create_pin": _create_pin,
    "import_commit": _import_commit,
}
"""By the method of the verb: the rules that look into its request."""
_BY_ID = frozenset({"import_abort", "release_pin", "drop_pin", "compaction_abort", "move_forget", "move_abort"})
AUDITED = _BY_ID | {
    *("create_table", "alter_table", "drop_table", "recall_table", "grant", "revoke"),
    *("maintain", "pause_maintenance"),
    *("import_begin", "import_commit", "pin_snapshot", "create_pin", "compaction_begin", "compaction_commit"),
    *("checkpoint", "move_begin", "move_receive", "move_prepare", "move_hand_over", "move_take_over"),
}
"""The actions whose outcome goes to the audit log."""

_TOLD = "import_id", "compaction_id", "move", "directory"
"""Fields of requests that the audit log tells."""


def told_of(action: str, asked: Any) -> dict[str, Any]:
    """Return what the audit log tells of an action with this first argument: names, and no values."""
    if isinstance(asked, str | int):
        return {"id" if action in _BY_ID else "table": str(asked)}
    if isinstance(asked, GrantChange):
        told = {"table": asked.table, "grantee": asked.user, "grantee_role": asked.role, "columns": asked.columns}
        return {"privileges": list(asked.privileges)} | {name: each for name, each in told.items() if each is not None}
    if isinstance(asked, Alteration):
        return {"table": asked.table, "steps": [step.op for step in asked.steps]}
    if isinstance(asked, CreatePin):
        return {"table": asked.table or ALL_TABLES, "pin": asked.name}
    if isinstance(asked, PauseMaintenance):
        return {"op": asked.op or "all", "seconds": asked.seconds}
    table = getattr(asked, "table", None) or getattr(asked, "name", None)
    known = {"table": table} | {name: getattr(asked, name, None) for name in _TOLD}
    return {name: each for name, each in known.items() if each is not None}
