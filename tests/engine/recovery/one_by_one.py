"""The replay as it would be without batches: one record after the other, one row after the other. The oracle of the
other one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from nyala.engine.commit.logged_answers import LoggedAnswers
from nyala.engine.record.change import ChangeKind
from nyala.engine.record.logged_rows import LoggedRows
from nyala.engine.recovery import log_replay, recovery
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.rowset.location import slots_of
from nyala.engine.tablet.replay import LogTimes
from nyala.engine.tablet.tablet import Tablet
from nyala.engine.vectors.keys.keys import hash_keys


def replay_one_by_one(tablet: Tablet, forms: Sequence[LoggedRows], times: LogTimes) -> int:
    """Do what ``tablet.replay.replay`` does."""
    rows = sorted((part, number, row) for number, form in enumerate(forms) for row, part in enumerate(form.parts))
    applied = 0
    for part, number, row in rows:
        lsn, timestamp = int(times.lsns[part]), int(times.timestamps[part])
        if lsn > tablet.in_files_lsn:
            tablet.replays(lsn)
            if tablet.quarantine is None:
                applied += _apply(tablet, forms[number].taken(np.array([row])), timestamp, lsn)
    return applied


def _apply(tablet: Tablet, row: LoggedRows, timestamp: int, lsn: int) -> int:
    keys = tablet.encoder.encode([row.cells[column.id] for column in tablet.schema.key])
    locations, _ = tablet.find(keys, hash_keys(keys))
    if locations[0] < 0:
        is_lacking = row.kind is ChangeKind.STORE and lsn > tablet.inserts_durable_lsn
    else:
        rowset = tablet.rowset(int(slots_of(locations)[0]))
        is_lacking = lsn > (rowset.durable_lsn if isinstance(rowset, DiskRowSet) else 0)
    if is_lacking:
        tablet.apply_cells(row.kind, row.cells, locations, timestamp, lsn)
    return int(is_lacking)


@contextmanager
def one_by_one() -> Iterator[None]:
    """Open stores so while the body runs."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recovery, "_AT_ONCE_BYTES", 1)
        patched.setattr(log_replay, "replay", replay_one_by_one)
        patched.setattr(LoggedAnswers, "of", lambda _: None)
        yield
