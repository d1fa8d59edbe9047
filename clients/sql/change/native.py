"""Statements that the store can run by itself: UPDATE and DELETE of one table by conditions of its own columns.

The store computes them just before their commit, so that no other writer refuses them. Only what means the same in its
expressions as in PostgreSQL goes to it; ``translate`` knows what does.
"""

from __future__ import annotations

from sqlglot import exp

from ....schemas.errors import InvalidArgumentError
from ....schemas.protocol.service import StoreService
from ....schemas.rows.statement import SET_TEXT_MAX, Statement, StatementKind
from ..text.names import alias_of, refuse_others
from .assignments import assignments_of
from .literals import is_default
from .target import ChangeTarget
from .translate import Foreign, Translator
from .update import DELETE, TAKEN, UPDATE
from .writing import Changed, refuse_rows

_NODES_MAX = 4_000
"""Expressions with more nodes may be beyond a limit of the store."""


def statement_of(tree: exp.Expr, target: ChangeTarget) -> Statement | None:
    """Return the statement of the store that does the same as an UPDATE or DELETE of SQL; None if there is none.

    Raises:
        InvalidArgumentError: the statement sets what cannot be set.
    """
    if isinstance(tree, exp.Update) and not _has(tree, "from_", "with_"):
        refuse_others(tree, TAKEN[UPDATE], UPDATE)
        return _translated(tree, target)
    if isinstance(tree, exp.Delete) and not _has(tree, "using", "with_"):
        refuse_others(tree, TAKEN[DELETE], DELETE)
        return _translated(tree, target)
    return None


def execute(store: StoreService, statement: Statement) -> Changed:
    """Run the statement of the store that an SQL statement has become.

    Raises:
        InvalidArgumentError: a value does not fit, or cannot be computed. Nothing was changed.
        StoreError: nothing was changed.
    """
    try:
        result = store.execute(statement.checked())
    except InvalidArgumentError as error:  # of an expression, which it quotes
        column = next((name for name, text in statement.set.items() if error.message.startswith(f"{text!r} ")), None)
        if column is None:
            raise
        raise InvalidArgumentError(f"column {column!r}: {error.message}") from None
    refuse_rows(result)
    kind = UPDATE if statement.kind is StatementKind.UPDATE else DELETE
    return Changed(kind, result.applied, result.timestamp)


def _has(tree: exp.Expr, *parts: str) -> bool:
    return any(tree.args.get(part) for part in parts)


def _translated(tree: exp.Update | exp.Delete, target: ChangeTarget) -> Statement | None:
    alias = alias_of(tree.this)
    translator = Translator(target.columns, alias)
    where = tree.args.get("where")
    if sum(1 for _ in tree.walk()) > _NODES_MAX:
        return None
    try:
        condition = "TRUE" if where is None else translator.condition(where.this)
        if isinstance(tree, exp.Delete):
            return _statement(target, StatementKind.DELETE, condition, {})
        changes = assignments_of(tree.expressions, target, alias, takes_key=True)
        if any(name in target.key for name in changes.names) or any(map(is_default, changes.nodes)):
            return None
        texts = {
            name: translator.value(node, target.columns[name])
            for name, node in zip(changes.names, changes.nodes, strict=True)
        }
    except Foreign:
        return None
    if len(condition) + sum(map(len, texts.values())) > SET_TEXT_MAX // 2:
        return None
    return _statement(target, StatementKind.UPDATE, condition, texts)


def _statement(target: ChangeTarget, kind: StatementKind, where: str, texts: dict[str, str]) -> Statement:
    return Statement(table=target.name, table_id=target.about.bound_id, kind=kind, set=texts, where=where)
