"""How far the store has its sources, such as a PostgreSQL or topics of Kafka: metrics from the table of positions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ...clients.flight.deadline import answered_within
from ...clients.sources.positions import POSITIONS
from ...schemas.errors import StoreError
from ...schemas.protocol.service import StoreService
from ...schemas.rows.scan import ScanSpec
from ...schemas.store.metrics import MetricFamily, gauge, one

SOURCES = (
    "nyala_source_lag_seconds",
    "nyala_source_behind_bytes",
    "nyala_source_applied_time_seconds",
    "nyala_source_behind_messages",
)
"""The names of the metrics."""
_SECONDS = 2.0
"""How long other processes may take to tell."""
_COLUMNS = ["source", "source_time", "applied_at", "behind_bytes", "behind_messages"]


def source_families(store: StoreService) -> list[MetricFamily]:
    """Return the metrics of how far each source is; without numbers if there is none, or the store cannot tell."""
    rows = _rows(store)
    applied = [row for row in rows if row["applied_at"] is not None]
    timed = [row for row in applied if row["source_time"] is not None]
    known = [row for row in rows if row["behind_bytes"] is not None]
    return [
        gauge(
            SOURCES[0],
            "Time from the last commit in the source to its commit in the store.",
            *(one((row["applied_at"] - row["source_time"]).total_seconds(), source=row["source"]) for row in timed),
        ),
        gauge(
            SOURCES[1],
            "Distance to the newest position of the source at the last commit.",
            *(one(row["behind_bytes"], source=row["source"]) for row in known),
        ),
        gauge(
            SOURCES[2],
            "When the last commit of the source was applied, since 1970.",
            *(one(_seconds(row["applied_at"]), source=row["source"]) for row in applied),
        ),
        gauge(
            SOURCES[3],
            "Messages of the partition that were not yet applied at the last commit.",
            *(one(row["behind_messages"], source=row["source"]) for row in rows if row["behind_messages"] is not None),
        ),
    ]


def _rows(store: StoreService) -> list[dict[str, Any]]:
    try:
        with answered_within(_SECONDS):  # where a process hangs, the other numbers are wanted all the more
            if POSITIONS not in store.tables():
                return []
            return store.scan(ScanSpec(table=POSITIONS, columns=_COLUMNS).checked()).to_table().to_pylist()
    except StoreError:  # a table of that name with other columns, or a store that is not readable now
        return []


def _seconds(moment: datetime) -> float:
    return moment.replace(tzinfo=UTC).timestamp()
