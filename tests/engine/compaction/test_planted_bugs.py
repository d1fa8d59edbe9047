"""The tests with writes in the middle of a compaction are worth what they catch: bugs that only show there."""

from typing import Any

import numpy as np
import pytest

from nyala.engine.compaction import switch_over as swapping
from nyala.engine.compaction.merge import compact
from nyala.engine.manifest.manifest import ManifestFile
from nyala.engine.rowset import diskrowset
from nyala.engine.rowset.liveness import LiveRows
from nyala.schemas.errors import StoreError
from tests.engine.compaction.test_history_gc import (
    test_a_scan_that_runs_keeps_its_version_and_one_that_comes_later_is_refused as scan_that_runs,
)
from tests.engine.phases import at
from tests.engine.subject import Subject

WRONG = (AssertionError, StoreError, IndexError, KeyError)


def merged_with_writes(monkeypatch: pytest.MonkeyPatch, mark: bool) -> None:
    """Change, delete and bring back rows between the phases of a merge, and compare every snapshot."""
    subject = Subject()
    subject.upsert(*range(8))
    subject.flush()
    subject.upsert(*range(8, 16))
    subject.flush()
    subject.delete(0, 8)
    if mark:
        subject.history = subject.history[-1:]

    def meanwhile() -> None:
        subject.upsert(0, 1, v=5)
        subject.delete(2, 9)

    at(monkeypatch, (ManifestFile, "commit"), True, meanwhile)
    with subject.tablet.maintenance_lock:
        compact(subject.tablet, subject.environment, ancient_history_mark=subject.history[0][0] if mark else 0)
    subject.check()
    subject.close()


@pytest.mark.parametrize("mark", [False, True], ids=["all history", "rows left out"])
def test_without_a_bug_all_is_right(monkeypatch: pytest.MonkeyPatch, mark: bool) -> None:
    merged_with_writes(monkeypatch, mark)


def test_a_delta_missed_by_the_swap_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swapping.SwitchOver, "_carry_over", lambda self: 0)
    with pytest.raises(WRONG):
        merged_with_writes(monkeypatch, mark=False)


def test_a_row_that_was_left_out_and_came_back_too_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swapping.RevivedRows, "__bool__", lambda self: False)
    with pytest.raises(WRONG):
        merged_with_writes(monkeypatch, mark=True)


def test_a_delete_lost_by_the_swap_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def set_nothing_dead(self: LiveRows, rowids: np.ndarray, alive: bool) -> Any:
        return original(self, rowids, True)

    original = LiveRows.set
    monkeypatch.setattr(LiveRows, "set", set_nothing_dead)
    with pytest.raises(WRONG):
        merged_with_writes(monkeypatch, mark=False)


def test_a_gc_that_ignores_pinned_versions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diskrowset, "copy", lambda rowset: rowset)  # a new version is the old one, changed in place
    with pytest.raises(WRONG):
        scan_that_runs()
