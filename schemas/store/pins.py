"""Pins that are kept: snapshots with a name, whose files stay until somebody drops the pin."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt

from ..message import Message
from ..table.table import TableOptions
from .direct import PIN_ID_LENGTH_MAX, PinnedTable

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("use up to 64 letters, digits and '._-', and do not begin with '.' or '-'")
    return name


class CreatePin(Message, frozen=True, extra="forbid"):
    """The body of ``create_pin``: the store keeps a snapshot under a name until somebody drops the pin."""

    name: Annotated[str, AfterValidator(_checked_name)]
    """No other kept pin of the store has it."""
    table: str | None = None
    """None: all tables, as a store in a bucket can keep them."""
    as_of: int | str | None = None
    """The snapshot; None means now."""


class KeptPin(Message, frozen=True):
    """The description of a pin of a store that stays until it is dropped."""

    pin_id: str
    name: str
    table: str | None = None
    """The table's name when it was pinned; None: all tables."""
    table_id: PositiveInt | None = None
    snapshot: NonNegativeInt
    """It has all commits up to this timestamp."""


class KeptPins(Message, frozen=True, extra="forbid"):
    """The pins that a store keeps: the answer of ``pins``."""

    pins: list[KeptPin]
    """Oldest first."""


class OpenPin(Message, frozen=True, extra="forbid"):
    """The body of ``open_pin``: which pin of the store to read, and which table."""

    pin_id: str = Field(max_length=PIN_ID_LENGTH_MAX)
    table: str | None = None
    """Its name when it was pinned. May be left out if the pin has one table."""


class OpenedPin(Message, frozen=True, extra="forbid"):
    """The answer of ``open_pin``: everything needed to read the files that the store keeps."""

    pinned: PinnedTable
    options: TableOptions
    """Those that the table had."""
