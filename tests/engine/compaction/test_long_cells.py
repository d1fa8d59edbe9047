"""Cells that grow long late: no page of any file grows beyond its bounds, and maintenance goes on."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from nyala.engine.cfile import cutter
from nyala.engine.cfile.writer import StreamWriter
from nyala.engine.codecs.codec import PAGE_ROWS
from nyala.engine.rowset import steps
from nyala.engine.vectors.vector import Vector
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand
from tests.engine.subject import SCHEMA, Row, Subject

LONG = 3_000
USUAL = 64 << 10


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutter, "TARGET_PAGE_BYTES", 1 << 20)
    monkeypatch.setattr(cutter, "MAX_PAGE_BYTES", 1 << 21)


def write(subject: Subject, keys: range, length: int) -> dict[int, Row]:
    rows: dict[int, Row] = {key: (key, key, chr(97 + key % 26) * length) for key in keys}
    columns = [list(cells) for cells in zip(*rows.values(), strict=True)]
    arrays = [pa.array(cells, field.type) for cells, field in zip(columns, SCHEMA, strict=True)]
    subject.store.write(WriteCommand(table="t", op=Operation.UPSERT), pa.record_batch(arrays, schema=SCHEMA))
    return rows


def test_flushes_and_compactions_cut_pages_by_bytes() -> None:
    subject = Subject(flush_bytes=1 << 30)
    state = write(subject, range(0, PAGE_ROWS, 2), 2)
    subject.flush()
    state |= write(subject, range(1, PAGE_ROWS, 2), 2)
    state |= write(subject, range(PAGE_ROWS, PAGE_ROWS + LONG), 800)
    subject.flush()
    before = subject.store.now()
    for work in ("compact", "flush_deltas", "major_compact", "compact", "gc"):
        subject.store.maintain("t", work)
        assert subject.scan() == list(state.values()) or sorted(subject.scan()) == sorted(state.values())
        if work == "compact":
            changed = range(PAGE_ROWS + LONG // 2, PAGE_ROWS + LONG)
            state |= write(subject, changed, 1_100)
    (rowset,) = subject.tablet.version.disk
    stream = rowset.base_stream(3)
    assert stream.page_rows == 1 and stream.entry.pages[0].row_count == PAGE_ROWS
    assert rowset.base_stream(2).page_rows == PAGE_ROWS
    middle = PAGE_ROWS + LONG // 3
    assert subject.scan(where=f"k = {middle}") == [state[middle]]
    text = state[middle][2]
    wanted = [row for row in state.values() if row[2] == text]
    assert subject.scan(where=f"s = '{text}'", ordered=True) == sorted(wanted)
    assert len(subject.scan(as_of=before)) == len(state)
    subject.restart()
    assert sorted(subject.scan()) == sorted(state.values())
    subject.state, subject.history = state, []
    subject.close()


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The bytes of cells that were handed to a stream at once; a step may have 1 MiB, with deltas 2."""
    sizes: list[int] = []
    append = StreamWriter.append

    def counted(self: StreamWriter, vector: Vector) -> None:
        sizes.append(cutter.cell_bytes(vector))
        append(self, vector)

    monkeypatch.setattr(StreamWriter, "append", counted)
    monkeypatch.setattr(steps, "BYTES_AT_ONCE", 1 << 20)
    monkeypatch.setattr(steps, "DELTAS_BYTES_AT_ONCE", 2 << 20)
    yield sizes


def test_compactions_hold_few_long_rows_at_once(longest: list[int]) -> None:
    """Two rowsets of 25 MiB, all rows changed once: no step of a merge or of a delta compaction has more than 4 MiB."""
    subject = Subject(flush_bytes=1 << 30)
    state = write(subject, range(0, 800, 2), USUAL)
    subject.flush()
    state |= write(subject, range(1, 800, 2), USUAL)
    subject.flush()
    for works in (("flush_deltas",), ("major_compact", "compact"), ("flush_deltas", "compact")):
        state |= write(subject, range(0, 800), USUAL - len(works))
        subject.store.maintain("t", "flush_deltas")
        for work in works:
            longest.clear()
            subject.store.maintain("t", work)
            assert max(longest, default=0) <= 4 << 20, work
    assert sorted(subject.scan()) == sorted(state.values())
    subject.state, subject.history = state, []
    subject.close()


def test_few_long_rows_among_many_short_ones_shorten_the_steps(longest: list[int]) -> None:
    """On average a row is short here; where pages were cut by their bytes, steps are as short as for the long rows."""
    subject = Subject(flush_bytes=1 << 30)
    state = write(subject, range(0, 2 * PAGE_ROWS, 2), 2)
    state |= write(subject, range(2 * PAGE_ROWS, 2 * PAGE_ROWS + 200), USUAL)
    subject.flush()
    state |= write(subject, range(1, 2_000, 2), 2)
    subject.flush()
    longest.clear()
    subject.store.maintain("t", "compact")
    assert max(longest) <= 4 << 20 and len(subject.tablet.version.disk) == 1
    assert sorted(subject.scan()) == sorted(state.values())
    subject.state, subject.history = state, []
    subject.close()
