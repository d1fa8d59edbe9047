"""Plain filters: comparisons of columns with literals, joined by AND, as in ``id = 7`` or ``id >= 7 AND id < 20``.

Filters of one form differ only in their literals. So one of them is compiled, and the plan for it serves the others.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar, cast

from ....schemas.rows.scan import ScanSpec
from ...expression.tree import ComparisonOp
from ...table.table_version import TableVersion

_PLAIN = frozenset({"table", "columns", "where", "ordered", "limit"})
_DEFAULTS = ScanSpec(table="")
_TEXT_MAX = 1024
_PARTS_MAX = 16
_PLANS_MAX = 256
UNSEEN: Any = object()
"""In place of the plan of a form that has not been seen."""
_OPS = frozenset({"=", "<", "<=", ">", ">="})
_LITERAL = r"(-?[0-9]{1,19}|'[^'\\\x00-\x1f]*')"
_COMPARISON = rf"([A-Za-z_][A-Za-z_0-9]*) *(=|<=?|>=?) *{_LITERAL}"
_WHERE = re.compile(rf"{_COMPARISON}(?: +(?:AND|and) +{_COMPARISON})*", re.ASCII)
_PART = re.compile(_COMPARISON, re.ASCII)

Form = tuple[tuple[str, ComparisonOp], ...]
"""The columns that a filter compares, and how."""


Plan = TypeVar("Plan")


class FilterPlans(dict[Any, Plan | None]):
    """Plans of one kind for the filters of one version of a table, by form; None: the form has no such plan. Look a
    form up once: another thread may clear the plans."""

    def __init__(self, _: TableVersion) -> None:
        super().__init__()

    def keep(self, form: Any, plan: Plan | None) -> None:
        """Keep the plan of a form, among others as far as there are few."""
        if len(self) >= _PLANS_MAX:
            self.clear()
        self[form] = plan


def is_plain(spec: ScanSpec) -> bool:
    """Whether a scan has no options but an order and a limit: none are given, or they are what they are when they are
    not given."""
    options = spec.model_fields_set - _PLAIN
    return not options or all(getattr(spec, name) == getattr(_DEFAULTS, name) for name in options)


def parts_of(where: str | dict[str, Any] | None) -> tuple[Form, tuple[Any, ...]] | None:
    """Return the form of a plain filter, and its literals; None if it is of another kind."""
    if type(where) is str:
        return _parts_of_text(where)
    if type(where) is not dict:
        return None
    parts = where.get("args") if where.get("op") == "and" and len(where) == 2 else [where]
    if type(parts) is not list or not 0 < len(parts) <= _PARTS_MAX:
        return None
    form: list[tuple[str, ComparisonOp]] = []
    literals: list[Any] = []
    for part in parts:
        if type(part) is not dict or len(part) != 3 or "value" not in part:
            return None
        column, op = part.get("column"), part.get("op")
        if type(column) is not str or type(op) is not str or op not in _OPS:
            return None
        form.append((column, cast(ComparisonOp, op)))
        literals.append(part["value"])
    return tuple(form), tuple(literals)


def _parts_of_text(where: str) -> tuple[Form, tuple[Any, ...]] | None:
    if len(where) > _TEXT_MAX or not _WHERE.fullmatch(where):
        return None
    parts = _PART.findall(where)
    if len(parts) > _PARTS_MAX:
        return None
    return tuple((name, cast(ComparisonOp, op)) for name, op, _ in parts), tuple(_value(text) for _, _, text in parts)


def _value(text: str) -> int | str:
    return text[1:-1] if text.startswith("'") else int(text)
