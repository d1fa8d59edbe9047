"""A reader beside the process that has a store, which does something just between two steps of the reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.replica.segments import SegmentSource
from tests.engine.replica.live_stores import SCHEMA, put


@pytest.mark.parametrize("is_all_freed", [False, True])
def test_a_log_that_is_freed_while_tables_are_opened_hides_no_row(
    home: Path, holder: Database, monkeypatch: pytest.MonkeyPatch, is_all_freed: bool
) -> None:
    """The reader knows the manifest and the end of the log; the holder flushes and frees it before it is read again."""
    with nyala.open(home, read_only=True) as reader:
        table = reader.table("t")
        for each in range(0, 2_000, 10):
            put(holder, *range(each, each + 10))
        holder.create_table("another manifest", SCHEMA, "id")
        needed = SegmentSource.needed
        freed: list[bool] = []

        def late(self: SegmentSource, newest: Any) -> Any:
            log = needed(self, newest)
            if not freed:
                first = min((home / "wal").iterdir())
                holder.table("t").maintain("flush")
                for _ in range(2 if is_all_freed else 1):
                    put(holder, *range(2_000))
                    holder.table("t").maintain("flush")
                freed.append(not first.exists())
            return log

        monkeypatch.setattr(SegmentSource, "needed", late)
        assert table.count() == 2_000
        assert freed == [True]


def test_a_moment_just_before_a_look_shows_what_was_acknowledged_since(
    home: Path, holder: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit may reach the log a little after the look at whose time it got its timestamp."""
    put(holder, 1)
    monkeypatch.setattr("nyala.engine.replica.segments._COMMIT_MICROSECONDS", 60_000_000)
    with nyala.open(home, read_only=True) as reader:
        store: Any = reader._store
        physical = store._clock.physical_microseconds
        monkeypatch.setattr(store._clock, "physical_microseconds", lambda: physical() + 30_000_000)
        table = reader.table("t")
        assert table.count() == 1, "a look, as if the next commit had its timestamp and was not in the log yet"
        put(holder, 2)
        moment = holder.now()
        assert table.scan(as_of=moment).count() == 2
        put(holder, 3)
        assert table.count() == 3
        assert table.scan(as_of=moment).count() == 2
