"""A row that is written as those of many callers are: together with others, of which there are none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nyala.engine.store import Store
from nyala.schemas.errors import StoreError
from nyala.schemas.rows.write import WriteCommand, WriteResult


def write_gathered(store: Store, command: WriteCommand, row: Mapping[str, Any], seq: int) -> WriteResult | None:
    """Write a row, given as Python values by column, with a number that no other has; None: nothing was done.

    Raises:
        StoreError: as ``write_row``.
    """
    planned = store.planned_row(command.model_copy(update={"writer": "gathered"}), row, seq)
    if planned is None:
        return None
    (answer,) = store.gatherer().write_each([planned])
    if isinstance(answer, StoreError):
        raise answer
    return answer
