"""What a replay in batches leaves in the memory stores of a tablet is, entry by entry, what one by one leaves."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.engine.record.change import ChangeKind
from nyala.engine.record.logged_rows import LoggedRows
from nyala.engine.tablet.replay import LogTimes, replay
from nyala.engine.tablet.tablet import Tablet
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.keys.key_vector import keys_as_bytes
from nyala.engine.vectors.physical import physical_of
from nyala.engine.vectors.vector import BytesVector, Vector
from nyala.schemas.limits.limits import Limits
from nyala.schemas.table.table import TableDefinition, TableSchema
from tests.engine.recovery.one_by_one import replay_one_by_one

KEY, NUMBER, TEXT, DROPPED = 1, 2, 3, 9
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int32()), ("s", pa.string())])
PARTS = 60


def new_tablet(inserts_durable_lsn: int, in_files_lsn: int) -> Tablet:
    definition = TableDefinition.from_arrow("t", SCHEMA, ["k"])
    tablet = Tablet(1, TableSchema.create(definition, Limits()))
    tablet.inserts_durable_lsn, tablet.in_files_lsn = inserts_durable_lsn, in_files_lsn
    return tablet


def random_forms(random: Random, keys: int) -> list[LoggedRows]:
    """Return changes of every kind and of several sets of columns, some narrower or dropped since."""
    shapes: list[tuple[ChangeKind, list[int]]] = [
        (ChangeKind.STORE, [KEY, NUMBER, TEXT]),
        (ChangeKind.STORE, [KEY, TEXT]),
        (ChangeKind.UPDATE, [KEY, NUMBER]),
        (ChangeKind.UPDATE, [KEY, NUMBER, TEXT]),
        (ChangeKind.UPDATE, [KEY, DROPPED]),
        (ChangeKind.DELETE, [KEY]),
    ]
    shapes = random.sample(shapes, random.randint(1, len(shapes)))
    places: list[list[int]] = [[] for _ in shapes]
    for part in range(PARTS):
        places[random.randrange(len(shapes))] += [part] * random.choice([1, 1, 1, 3])
    forms: list[LoggedRows] = []
    for (kind, columns), parts in zip(shapes, places, strict=True):
        cells: dict[int, Vector] = {}
        for column in columns:
            if column == KEY:
                array = pa.array(_keys(random, parts, keys), pa.int64())
            elif column == TEXT:
                array = pa.array([random.choice([None, "", "x", "y" * 40]) for _ in parts], pa.string())
            else:
                array = pa.array([random.choice([None, random.randrange(99)]) for _ in parts], pa.int16())
            cells[column] = from_arrow(array, physical_of(array.type))
        forms.append(LoggedRows(1, kind, cells, np.array(parts, np.int64)))
    return [form for form in forms if len(form)]


def _keys(random: Random, parts: Sequence[int], keys: int) -> list[int]:
    """Return keys, those of one change different."""
    found: list[int] = []
    for row, part in enumerate(parts):
        taken = {found[other] for other in range(row) if parts[other] == part}
        found.append(random.choice([key for key in range(keys) if key not in taken]))
    return found


def content(tablet: Tablet) -> Any:
    """Return all that is in the memory stores."""
    active = tablet.version.active
    columns = {number: _cells(column.view(len(active))) for number, column in active._columns.items()}
    deltas: dict[int, Any] = {}
    store = active.deltas.active
    for column_id in store.column_ids:
        log = store.log(column_id)
        assert log is not None
        count = len(log)
        deltas[column_id] = (
            log.rows.rowids(0, count).tolist(),
            log.rows.timestamps(0, count).tolist(),
            _cells(log.values.view(count)),
        )
    alive = active.live.at(np.arange(len(active))).tolist()
    keys = keys_as_bytes(active.keys(len(active)))
    counts = tablet.live_rows, tablet.rows_written, tablet.first_unflushed_lsn(), store.first_lsn, active.first_lsn
    return columns, active.inserted_at(len(active)).tolist(), deltas, alive, counts, keys.data.tobytes()


def _cells(vector: Any) -> Any:
    valid = None if vector.valid is None or vector.valid.all() else vector.valid.tolist()
    if isinstance(vector, BytesVector):
        return vector.offsets.tolist(), vector.data[: vector.offsets[-1]].tobytes(), valid
    return vector.values.tolist(), valid


@pytest.mark.parametrize("seed", range(60))
def test_stores_have_the_same_entries_in_the_same_order(seed: int) -> None:
    random = Random(seed)
    durable = random.choice([0, 20]), random.choice([0, 0, 15])
    times = LogTimes(np.arange(1, PARTS + 1), np.arange(1, PARTS + 1) * 4096)
    tablets = new_tablet(*durable), new_tablet(*durable)
    for _ in range(3):
        forms = random_forms(random, random.choice([4, 30]))
        assert replay(tablets[0], forms, times) == replay_one_by_one(tablets[1], forms, times)
        times = LogTimes(times.lsns + PARTS, times.timestamps + PARTS * 4096)
        assert content(tablets[0]) == content(tablets[1])
