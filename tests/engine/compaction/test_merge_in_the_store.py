"""Merge compactions through the front door, for all kinds of keys: between major delta compactions, restarts and feeds
that span them, the store stays the model."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise, product
from random import Random

import pyarrow as pa
import pytest

from nyala.engine.compaction import merge as merging
from nyala.engine.compaction.merge_rows import Merge
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.maintenance import upkeep
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.store import Store
from nyala.schemas.rows.changes import ChangeSpec
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition
from tests.campaigns.model.session import Session
from tests.campaigns.model.shapes import ALL_TYPES, SHORT_HISTORY, STRING_KEY, U64, Shape
from tests.campaigns.model.subjects import EmbeddedSubject
from tests.dose import by_night

SHAPES = {"u64": U64, "composite": ALL_TYPES, "string": STRING_KEY, "short history": SHORT_HISTORY}


def rowsets(store: Store) -> list[DiskRowSet]:
    return [rowset for tablet in store._catalog.table("t").tablets for rowset in tablet.version.disk]


def random_rows(shape: Shape, columns: tuple[str, ...], random: Random) -> list[tuple]:
    """Return rows of different keys, none to be refused for a NULL."""
    choices = {
        name: [cell for cell in shape.cells[name] if cell is not None or name not in shape.model.not_null]
        for name in columns
    }
    keys = list(product(*(choices[name] for name in shape.model.key)))
    values = columns[len(shape.model.key) :]
    chosen = random.sample(keys, random.randint(2, len(keys)))
    return [(*key, *(random.choice(choices[name]) for name in values)) for key in chosen]


def write_and_flush(session: Session, random: Random) -> None:
    """Make one rowset, if there are new keys, and let the others have base files by column and REDO files."""
    model = session.shape.model
    columns = (*model.key, *random.sample([name for name in model.defaults if name not in model.not_null], 2))
    session.write("insert_ignore", model.columns, random_rows(session.shape, model.columns, random)[:4])
    session.maintain("flush")
    session.write("update_ignore", columns, random_rows(session.shape, columns, random))
    session.maintain("flush_deltas")
    session.write("delete_ignore", model.key, random_rows(session.shape, model.key, random)[:3])
    session.write("upsert", model.columns, random_rows(session.shape, model.columns, random)[:2])
    session.maintain(random.choice(["flush_deltas", "flush"]))
    session.maintain(random.choice(["major_compact", "major_compact", "minor_compact"]))


def check_all(session: Session) -> None:
    """Compare every moment, every feed between neighbours and some longer ones, and every key."""
    shape, count = session.shape, len(session.moments)
    for moment in range(count):
        session.scan(shape.model.columns, ordered=moment % 2 == 0, moment=moment)
    ranges = [*pairwise(range(count)), *((since, count - 1) for since in range(0, count, 3))]
    for number, (since, until) in enumerate(ranges):
        session.changes(since, until, every=number % 2 == 0, before=True, ordered=number % 3 == 0)
        session.changes(since, until, every=number % 2 == 1)
    session.get(list(product(*(shape.cells[name] for name in shape.model.key))))


@pytest.mark.parametrize("seed", by_night(range(2), range(1)))
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_store_is_the_model_across_merges(shape: Shape, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    subject = EmbeddedSubject(shape)
    session = Session(shape, subject)
    monkeypatch.setattr(upkeep, "compact", partial(merging.compact, target_rows=5))
    monkeypatch.setattr(Merge, "_chunk_rows", lambda _: random.choice([2, 3, 1024]))
    by_column = 0
    for number in range(3):
        for _ in range(2):
            write_and_flush(session, random)
            session.advance(random.choice([0, 1, 4]))
        by_column += sum(len(rowset.columns_files) for rowset in rowsets(subject._store))
        session.write("upsert", shape.model.columns, random_rows(shape, shape.model.columns, random)[:3])
        session.maintain("compact")
        merged = sorted((rowset.min_key, rowset.max_key) for rowset in rowsets(subject._store))
        assert all(left[1] < right[0] for left, right in pairwise(merged))
        session.maintain("gc")
        session.restart(random.choice(["close", "kill", "power"]), number)
        session.check()
    check_all(session)
    assert by_column > 1, "no rowset had base files by column when it was merged"
    session.subject.close()
    report = verify_store(subject._fs)
    assert report.is_sound, report.problems


LARGE = pa.schema([("name", pa.string()), ("unit", pa.int32()), ("v", pa.int64()), ("s", pa.string())])
ROWS = 150_000
"""More than two pages."""


@pytest.fixture
def large() -> Iterator[Store]:
    options = StoreOptions(maintenance="off")
    with Store.open(MemoryFileSystem(), options) as store:
        store.create_table(TableDefinition.from_arrow("t", LARGE, ["name", "unit"]))
        yield store


def write(store: Store, op: str, numbers: range, columns: tuple[str, ...], value: int = 0) -> int:
    """Write rows whose keys come from numbers; return the timestamp."""
    cells = {
        "name": pa.array([f"station {number % 977} of {number % 13}" for number in numbers]),
        "unit": pa.array(numbers, pa.int32()),
        "v": pa.array([number * value for number in numbers], pa.int64()),
        "s": pa.array([None if number % 7 == 0 else f"{value} {number % 50}" for number in numbers]),
    }
    batch = pa.record_batch({name: cells[name] for name in columns}, pa.schema([LARGE.field(name) for name in columns]))
    return store.write(WriteCommand(table="t", op=Operation(op)), batch).timestamp


def test_all_that_was_ever_to_be_read_of_many_pages_reads_the_same(large: Store) -> None:
    key, everything = ("name", "unit"), ("name", "unit", "v", "s")
    moments = [large.now()]
    for third in range(3):
        numbers = range(third, ROWS, 3)
        moments.append(write(large, "insert", numbers, everything, third))
        large.maintain("t", "flush")
    moments.append(write(large, "update", range(0, ROWS, 4), (*key, "v"), 7))
    large.maintain("t", "flush_deltas")
    large.maintain("t", "major_compact")
    moments.append(write(large, "delete", range(0, ROWS, 5), key))
    large.maintain("t", "flush_deltas")
    moments.append(write(large, "insert", range(0, ROWS, 10), everything, 9))
    moments.append(write(large, "update", range(1, ROWS, 5), (*key, "s"), 3))

    def read(**spec: object) -> pa.Table:
        return large.scan(ScanSpec.model_validate({"table": "t", **spec})).to_reader().read_all()

    def seen() -> list[pa.Table]:
        snapshots = [read(as_of=moment, ordered=True) for moment in moments]
        ends = [(moments[0], moments[-1]), (moments[2], moments[4]), (moments[3], moments[6])]
        feeds = [
            read(changes=ChangeSpec(since=since, until=until, every=every, before=True), ordered=True)
            for since, until in ends
            for every in (False, True)
        ]
        wanted = [f"station {number % 977} of {number % 13}" for number in range(0, ROWS, 101)]
        keys = pa.record_batch({"name": wanted, "unit": pa.array(range(0, ROWS, 101), pa.int32())})
        return [*snapshots, *feeds, large.get("t", keys)]

    before = seen()
    assert len(rowsets(large)) == 3 and all(rowset.columns_files for rowset in rowsets(large))
    large.maintain("t", "compact")
    (merged,) = rowsets(large)
    assert len(merged) == ROWS and not merged.columns_files and not merged.deltas.stores.redo
    after = seen()
    assert before[0].num_rows == 0 and before[len(moments)].num_rows > ROWS / 2
    assert [left.equals(right) for left, right in zip(before, after, strict=True)] == [True] * len(before)
