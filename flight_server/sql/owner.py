"""Whose a statement of Flight SQL is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..security.identity import Source


class Owner(NamedTuple):
    """Whose a statement is, with all that its rights come from: tokens of one user may have different roles."""

    user: str = ""
    """An empty one stands for anyone."""
    roles: frozenset[str] = frozenset()
    source: Source | None = None
