"""Random tables with nested columns, and changes of their rows, as Hypothesis draws them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

from tests.engine.vectors.nested_values import nested_types, values

STEPS = ("flush", "flush_deltas", "minor_compact", "major_compact", "compact")
"""What maintenance may do to a table."""
_INTERVAL = pa.month_day_nano_interval()
_NUMBERS = st.integers(-(2**31), 2**31 - 1)
_INTERVALS = st.none() | st.builds(
    lambda months, days, nanoseconds: pa.MonthDayNano([months, days, nanoseconds]),
    _NUMBERS,
    _NUMBERS,
    st.integers(-(2**63), 2**63 - 1),
)


@dataclass(frozen=True)
class Drawn:
    """A table, and what becomes of it."""

    rows: pa.Table
    changes: pa.Table
    """Other cells for some of the rows."""
    more: pa.Array
    """The cells of a column that is added later, one for each row."""
    steps: list[str]
    later: list[str]
    """Maintenance before the changes and after them."""
    row_column: bool
    is_remote: bool
    """Whether rows come over Flight."""
    life: int
    """Which of the costlier lives the table has, as a number beyond all of them."""
    dies_after: int
    """After how many steps a process is killed, if it is."""

    @property
    def changed(self) -> pa.Table:
        """The rows after the changes."""
        places = {key: self.rows.num_rows + place for place, key in enumerate(self.changes["k"].to_pylist())}
        indices = [places.get(key, key) for key in range(self.rows.num_rows)]
        return pa.concat_tables([self.rows, self.changes]).combine_chunks().take(pa.array(indices))


@st.composite
def tables(draw: st.DrawFn) -> Drawn:
    """Draw a table of up to eight rows and three nested columns, at most four types deep."""
    kinds = draw(st.lists(nested_types(), min_size=1, max_size=3))
    if draw(st.integers(0, 3)) == 0:
        kinds.append(_INTERVAL)
    count = draw(st.integers(1, 8))
    fields = [pa.field("k", pa.int64(), False), *(pa.field(f"c{number}", kind) for number, kind in enumerate(kinds))]
    schema = pa.schema(fields)
    cells = [draw(cells_of(kind, count)) for kind in kinds]
    changed = draw(st.lists(st.integers(0, count - 1), unique=True, max_size=count).map(sorted))
    others = [draw(cells_of(kind, len(changed))) for kind in kinds]
    return Drawn(
        rows=pa.table([pa.array(range(count)), *cells], schema=schema),
        changes=pa.table([pa.array(changed, pa.int64()), *others], schema=schema),
        more=draw(cells_of(draw(nested_types(2)), count)),
        steps=draw(st.lists(st.sampled_from(STEPS), max_size=4)),
        later=draw(st.lists(st.sampled_from(STEPS), max_size=4)),
        row_column=draw(st.booleans()),
        is_remote=draw(st.booleans()),
        life=draw(st.integers(0, 59)),
        dies_after=draw(st.integers(0, 59)),
    )


def cells_of(kind: pa.DataType, count: int) -> st.SearchStrategy[pa.Array]:
    """Draw the cells of a column."""
    each = _INTERVALS if kind == _INTERVAL else values(kind)
    return st.lists(each, min_size=count, max_size=count).map(lambda cells: pa.array(cells, kind))
