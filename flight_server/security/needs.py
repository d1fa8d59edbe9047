"""Needs: the columns that a request reads or writes, by name. Asked only for callers with grants on some columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from ...schemas.limits.limits import Limits
from ...schemas.rows.aggregate import ALL_ROWS
from ...schemas.rows.operation import Operation
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.statement import Statement
from ...schemas.store.description import TableDescription
from ...schemas.store.grants import Privilege

_REMEMBERED_MAX = 1024
"""Longer filters are parsed each time."""
WRITTEN: dict[Operation, tuple[Privilege, ...]] = {
    Operation.INSERT: (Privilege.INSERT,),
    Operation.UPSERT: (Privilege.INSERT, Privilege.UPDATE),
    Operation.UPDATE: (Privilege.UPDATE,),
    Operation.DELETE: (Privilege.DELETE,),
}
"""What an operation needs, by its base."""


def read_by_scan(spec: ScanSpec, every: Iterable[str], key: Iterable[str]) -> set[str]:
    """Return the columns that a caller's scan reads, for which it needs grants: those that the scan returns, computes
    with, tests, sorts or groups by. ``every`` are the columns of the table, ``key`` those of its key."""
    if spec.aggregate is not None:
        names = {column for column, _ in spec.aggregate.values() if column != ALL_ROWS} | {*(spec.group_by or ())}
    else:
        names = {*(every if spec.columns is None else spec.columns)}
    names |= tested(spec.where)
    names.update(term.column for term in spec.order_by or ())
    if spec.ordered or has_keys(spec):
        names.update(key)
    return names


def has_keys(spec: ScanSpec) -> bool:
    """Whether a caller's scan is limited to some encoded keys, which compares key columns, and so needs grants on
    them."""
    return spec.key_lower is not None or spec.key_upper is not None


def read_by_statement(statement: Statement) -> set[str]:
    """Return the columns that the condition and the expressions of a caller's statement read, for which it needs
    grants."""
    from ...engine.statement.expressions import columns_of

    return tested(statement.where) | columns_of(statement.checked().set, Limits())


def read_by_rules(rules: Mapping[str, str]) -> set[str]:
    """Return the columns that the rules of a caller's merge read in live rows, for which it needs grants."""
    from ...engine.table.formulas import columns_read

    return columns_read(rules)


def kept_by_rules(rules: Mapping[str, str]) -> set[str]:
    """Return the columns that a caller's merge gives to new rows alone, by its rules."""
    from ...engine.table.formulas import columns_kept

    return columns_kept(rules)


def all_columns(table: TableDescription) -> set[str]:
    """Return the names of all columns of a table."""
    return {column.name for column in table.columns}


def written(privilege: Privilege, columns: Iterable[str], table: TableDescription) -> set[str]:
    """Return the columns for which a caller's write needs a privilege. An update names its rows by their keys."""
    names = {*columns}
    return names - {*table.primary_key} if privilege is Privilege.UPDATE else names


def tested(where: str | dict[str, Any] | None) -> set[str]:
    """Return the columns of a filter, for which a caller needs grants. Raises InvalidArgumentError: it is invalid."""
    if where is None:
        return set()
    if isinstance(where, str) and len(where) <= _REMEMBERED_MAX:
        return set(_tested(where))
    from ...engine.filter.where import columns_of

    return set(columns_of(where, Limits()))


@lru_cache(1024)
def _tested(where: str) -> frozenset[str]:
    from ...engine.filter.where import columns_of

    return columns_of(where, Limits())
