"""Creates a table like a described one: for restores and copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...schemas.protocol.service import StoreService
from ...schemas.store.description import TableDescription
from ...schemas.table.alter import Alteration, DropRangePartition
from ...schemas.table.column import ColumnDefinition
from ...schemas.table.partition import HashLevel, RangeLevel
from ...schemas.table.table import AUTO_INCREMENTING, TableDefinition

Levels = Sequence[HashLevel | RangeLevel | Mapping[str, Any]]


def create_like(
    service: StoreService, about: TableDescription, name: str, comment: str, partition_by: Levels | None = None
) -> TableDescription:
    """Create the empty table that a job restores or copies into, with the columns, key, partitions and options of
    another, but its own comment, and without ``order_by`` and ``ttl``: the rows may come with lower values than they
    had, and may expire meanwhile. Its cells may be as long as they ever might be in the other one.

    ``partition_by`` replaces its partitions. Column ids are new.

    Raises:
        AlreadyPresentError: a table of that name exists.
    """
    cell_bytes = max(about.options.cell_bytes_max or 0, about.cell_bytes_before or 0) or None
    levels = about.partitions if partition_by is None else partition_by
    definition = TableDefinition(
        name=name,
        columns=[
            ColumnDefinition(**column.model_dump(exclude={"id"}))
            for column in about.columns
            if about.unique_key or column.name != AUTO_INCREMENTING
        ],
        primary_key=[column for column in about.primary_key if about.unique_key or column != AUTO_INCREMENTING],
        unique_key=about.unique_key,
        partition_by=list(levels),  # pyright: ignore[reportArgumentType] - dicts are read as levels
        options=about.options.model_copy(
            update={"comment": comment, "order_by": None, "ttl": None, "cell_bytes_max": cell_bytes}
        ),
    )
    made = service.create_table(definition)
    if any(level.get("bounds") == [] for level in levels if isinstance(level, Mapping)):
        # The source has no range left, but a definition without bounds means one range of all values: drop it.
        return service.alter_table(Alteration(table=name, steps=[DropRangePartition()]))
    return made
