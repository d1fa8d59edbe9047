"""How far the store has its sources: in metrics, in ``nyala top`` and on the console."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa

import nyala
from nyala.clients.cli.activity import activity, sections
from nyala.clients.sources.positions import POSITIONS, Position, Positions, State
from tests.flight_server.http_client import Port, of
from tests.flight_server.test_console import words


def test_sources_are_shown_as_of_their_last_commit(port: Callable[..., Port]) -> None:
    one, applied = port(), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert "nyala_source_lag_seconds{" not in one.ask("/metrics")[1]
    shop = Position(
        source="shop",
        kind="postgresql",
        commit=3,
        state=State.FOLLOWING,
        position="0/10",
        source_time=applied - timedelta(seconds=1.5),
        applied_at=applied,
        behind_bytes=5_000,
    )
    copying = Position(source="copying", kind="postgresql", commit=1, applied_at=applied)
    with nyala.connect(one.served.url) as db:
        Positions(db)
        for position in (shop, copying):
            db.table(POSITIONS).insert(position.row())
        shown = activity(db.metrics(), db.metrics(), 1.0)
    values = one.values()
    assert of(values, "nyala_source_lag_seconds", source="shop") == 1.5
    assert of(values, "nyala_source_behind_bytes", source="shop") == 5_000
    assert of(values, "nyala_source_applied_time_seconds", source="shop") == applied.timestamp()
    assert of(values, "nyala_source_applied_time_seconds", source="copying") == applied.timestamp()
    assert [each["source"] for each in shown["sources"]] == ["copying", "shop"]
    (section,) = [each for each in sections(shown) if each.titles[0] == "source"]
    assert section.rows[1][:2] == ["shop", "1.5"]
    text = words(one.ask("/console/jobs")[1])
    assert "shop 2026-01-02 03:04:05" in text and "1.50 s" in text


def test_another_table_of_the_name_hides_no_metrics(port: Callable[..., Port]) -> None:
    one = port()
    with nyala.connect(one.served.url) as db:
        db.create_table(POSITIONS, pa.schema([("id", pa.int64())]), "id")
    status, text = one.ask("/metrics")
    assert status == 200 and "nyala_source_lag_seconds{" not in text and "nyala_table_rows{" in text
