"""Edits of a statement's text, by places in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit of an SQL query's text: the part from ``start`` to before ``end`` becomes ``text``."""

    start: int
    end: int
    text: str


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return the text of an SQL query with all edits. Insertions at one place keep their order."""
    parts: list[str] = []
    last = 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        parts += [text[last : edit.start], edit.text]
        last = edit.end
    return "".join([*parts, text[last:]])
