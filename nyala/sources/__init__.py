"""Sources that are mirrored into tables, exactly once: see docs/mirror.md.

`postgres` mirrors tables of PostgreSQL. To write a source of your own, derive from `Source` and give it to a `Runner`.
"""

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
    SourceColumn,
    SourceTable,
    Truncation,
)

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
    "SourceColumn",
    "SourceTable",
    "State",
    "Truncation",
]
