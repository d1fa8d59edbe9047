"""Sources that are mirrored into tables, exactly once: see docs/mirror.md and docs/kafka.md.

`postgres` mirrors tables of PostgreSQL, and `kafka` consumes topics of Kafka. To write a source of your own, derive
from `Source` and give it to a `Runner`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nyala.clients.sources.positions import POSITIONS, Position, State
from nyala.clients.sources.runner import Progress, Runner
from nyala.clients.sources.source import (
    BatchLimits,
    ChangedRows,
    NewColumns,
    Snapshot,
    SnapshotPart,
    Source,
    SourceBatch,
    SourceChangedError,
    SourceColumn,
    SourceTable,
    Truncation,
)

if TYPE_CHECKING:
    from nyala.sources import kafka as kafka
    from nyala.sources import postgres as postgres

__all__ = [
    "POSITIONS",
    "BatchLimits",
    "ChangedRows",
    "NewColumns",
    "Position",
    "Progress",
    "Runner",
    "Snapshot",
    "SnapshotPart",
    "Source",
    "SourceBatch",
    "SourceChangedError",
    "SourceColumn",
    "SourceTable",
    "State",
    "Truncation",
]


def __getattr__(name: str) -> Any:
    if name in ("kafka", "postgres"):  # each needs a client that those lack who have another source
        return import_module(f"nyala.sources.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
