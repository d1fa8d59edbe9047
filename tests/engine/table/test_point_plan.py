"""Single rows read natively, beside the batch lane: the same Python values, whatever was done to the table."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.convert.cells import python_cell
from nyala.clients.convert.keys import keys_of
from nyala.engine.cfile import stream
from nyala.engine.delta import pages
from nyala.engine.delta.tracker import DeltaTracker
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.rowset.native import page_rows
from nyala.engine.store import Store
from nyala.engine.tablet import lookup
from nyala.engine.tablet.key_lookup import KeyLookup
from nyala.engine.tablet.point_read import UndecidedError
from nyala.partition import hash as by_hash
from nyala.partition import range as by_range
from nyala.schemas.cells.encoding import COMPRESSIONS, encodings_for
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.errors import InvalidArgumentError, NotFoundError
from nyala.schemas.protocol.keys import key_values
from nyala.schemas.table.column import ColumnOptions
from tests.dose import diagonal

OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 20)
STEPS = ("upsert", "update", "delete", "flush", "flush_deltas", "minor_compact", "major_compact", "compact", "alter")


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(MemoryFileSystem(), OPTIONS) as store:
        yield store


def general(table: Table, key: Any) -> dict[str, Any] | None:
    """Return what a store without a native way answers."""
    found = many(table, [key], native=False)
    return {name: python_cell(found[name][0]) for name in found.schema.names} if found.num_rows else None


UNDECIDED = object()
"""The answer of the plan lane that leaves a row to the batch lane."""


def native(store: Store, table: Table, key: Any) -> Any:
    about = table._description
    rows: Any = store._catalog.table(about.name)
    try:
        return rows.get_row(about, key_values(key, about), store._mvcc.snapshot, store.options.limits)
    except UndecidedError:
        return UNDECIDED


def many(table: Table, keys: list[Any], native: bool = True) -> pa.Table:
    """Return the rows of keys that are read at once: by kernels where these can tell, or generally."""
    batch = keys_of(keys, table._description)
    with pytest.MonkeyPatch.context() as patch:
        if not native:
            patch.setattr(lookup, "KEYS_MAX", 0)
        return pa.concat_tables([table._store.get(table.name, each) for each in batch])


def _moment(number: int) -> dt.datetime:
    return dt.datetime(1969, 12, 31, 23) + dt.timedelta(seconds=number, microseconds=number % 7)


VALUES: dict[str, Any] = {
    "bool": lambda n: n % 3 == 0,
    "int8": lambda n: n % 256 - 128,
    "int16": lambda n: n * 77 % 65536 - 32768,
    "int32": lambda n: n * 7919 - (1 << 31),
    "int64": lambda n: (-1) ** n * n * 10**12,
    "date": lambda n: dt.date(1, 1, 1) + dt.timedelta(days=n * 399),
    "timestamp[us]": _moment,
    "float": lambda n: [float("nan"), -0.0, 0.1, float("-inf")][n] if n < 4 else n / 3,
    "double": lambda n: [float("nan"), -0.0, 1e300, float("inf")][n] if n < 4 else n / 7,
    "decimal(7,2)": lambda n: Decimal(n - 50).scaleb(-2),
    "decimal(15,0)": lambda n: Decimal((-1) ** n * n * 10**9),
    "decimal(38,20)": lambda n: Decimal((-1) ** n * n * 10**30).scaleb(-20),
    "string": lambda n: ["", "\u00e4", "a\0b", "\U0001f40e" * 9][n % 4] + "x" * (n % 5),
    "varchar(9)": lambda n: f"v{n % 12}",
    "binary": lambda n: bytes([n % 256]) * (n % 30),
}
VALUES |= {"decimal(15,2)": VALUES["decimal(7,2)"], "decimal(30,2)": VALUES["decimal(7,2)"]}
WIDER = {
    "int8": "int16",
    "int16": "int32",
    "int32": "int64",
    "float": "double",
    "decimal(7,2)": "decimal(15,2)",
    "decimal(15,2)": "decimal(30,2)",
}
KEYS: dict[str, tuple[str, ...]] = {
    "one integer": ("int64",),
    "two integers": ("int32", "int16"),
    "a string": ("string",),
    "mixed": ("string", "date", "decimal(38,20)"),
    "a decimal": ("decimal(7,2)",),
    "a moment": ("timestamp[us]", "binary"),
    "short text": ("varchar(9)", "int8", "decimal(15,0)"),
}


class Subject:
    """A table of random columns with random rows, and all keys that it ever had."""

    def __init__(self, store: Store, kinds: tuple[str, ...], seed: int, rows: int, tablets: int) -> None:
        self.store, self.random, self.rows = store, Random(seed), rows
        self.added = 0
        names = [f"k{i}" for i in range(len(kinds))]
        fields = [self._field(name, kind, False) for name, kind in zip(names, kinds, strict=True)]
        fields += [self._field(f"c{i}", kind, True) for i, kind in enumerate(VALUES)]
        options = {field.name: self._options(field) for field in fields}
        parts = [by_hash(*names[-1:], buckets=tablets)] if tablets > 1 else []
        self.table = Database(store).create_table("t", pa.schema(fields), names, parts, options)
        self.kinds = kinds
        self.numbers: set[int] = set()

    def _field(self, name: str, kind: str, nullable: bool) -> pa.Field:
        return LogicalType.parse(kind).field(name, nullable)

    def _options(self, field: pa.Field) -> ColumnOptions:
        encoding = self.random.choice(encodings_for(LogicalType.from_arrow(field)))
        compression = self.random.choice([*COMPRESSIONS, "none", "none"])
        block_rows = self.random.choice([None, 1024, 2048])
        return ColumnOptions(encoding=encoding, compression=compression, block_rows=block_rows)

    def key(self, number: int) -> tuple[Any, ...]:
        """Distinct for distinct numbers: of the first column that can be, the others follow it."""
        return tuple(_key_value(kind, number) for kind in self.kinds)

    def kind(self, name: str) -> str:
        return str(LogicalType.from_arrow(self.table.schema.field(name)))

    def batch(self, numbers: list[int], names: list[str]) -> pa.Table:
        keys = [self.key(number) for number in numbers]
        columns = {f"k{i}": [key[i] for key in keys] for i in range(len(self.kinds))}
        for name in names:
            columns[name] = [self._cell(self.kind(name)) for _ in numbers]
        return pa.table(columns, pa.schema([self.table.schema.field(name) for name in columns]))

    def _cell(self, kind: str) -> Any:
        return None if self.random.random() < 0.2 else VALUES[kind](self.random.randrange(100))

    def step(self, step: str) -> None:
        values = [name for name in self.table.schema.names if name not in self.table.primary_key]
        many = self.random.random() < 0.5
        numbers = self.random.sample(range(self.rows), self.rows // 2 if many else 3)
        if step == "upsert":
            self.table.upsert(self.batch(numbers, values))
        elif step == "update":
            some = self.random.sample(values, self.random.randrange(1, len(values)))
            self.table.update_ignore(self.batch(numbers, some))
        elif step == "delete":
            self.table.delete_ignore(self.batch(numbers[: self.rows // 4], []))
        elif step == "alter":
            self._alter(values)
        else:
            self.table.maintain(step)

    def _alter(self, values: list[str]) -> None:
        kind = self.random.choice(list(VALUES))
        default = VALUES[kind](5) if self.random.random() < 0.5 else None
        self.added += 1
        alteration = self.table.alter().add_column(f"n{self.added}", kind, read_default=default)
        alteration.drop_column(self.random.choice(values[8:]))
        kinds = {name: self.kind(name) for name in values[:8]}
        if narrow := [name for name in kinds if kinds[name] in WIDER]:
            name = self.random.choice(narrow)
            alteration.widen_column(name, WIDER[kinds[name]])
        alteration.apply()

    def check(self) -> int:
        """Compare some keys; return how many were read natively."""
        decided = 0
        keys = [self.key(number) for number in self.random.choices(range(self.rows + 20), k=70)]
        assert exact(many(self.table, keys)) == exact(many(self.table, keys, native=False))
        for number in self.random.sample(range(self.rows + 20), min(60, self.rows)):
            key = self.key(number)
            found, expected = native(self.store, self.table, key), general(self.table, key)
            if found is not UNDECIDED:
                decided += 1
                assert repr(found) == repr(expected), key
            assert repr(self.table.get(key)) == repr(expected), key
        return decided


def exact(table: pa.Table) -> list[str]:
    """Return rows that compare bit by bit."""
    table.validate(full=True)
    return [repr([python_cell(cell) for cell in row.values()]) for row in _scalars(table)]


def _scalars(table: pa.Table) -> Iterator[dict[str, pa.Scalar]]:
    columns = {name: table[name] for name in table.schema.names}
    for row in range(table.num_rows):
        yield {name: column[row] for name, column in columns.items()}


def _key_value(kind: str, number: int) -> Any:
    if kind == "string":
        return f"key\0{number}" if number % 2 else f"{number}"
    if kind == "varchar(9)":
        return f"k{number}"
    if kind == "binary":
        return number.to_bytes(2, "big")
    return VALUES[kind](number % 100 if kind == "int8" else number)


@pytest.mark.parametrize(("name", "tablets"), diagonal(KEYS, [1, 3]))
def test_both_ways_agree_on_random_tables(
    store: Store, name: str, tablets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (stream, page_rows):
        monkeypatch.setattr(module, "OFTEN", 20)  # so that pages are uncompressed on the way
    seed = Random().randrange(1 << 30)
    print("seed", seed)
    subject = Subject(store, KEYS[name], seed, rows=300, tablets=tablets)
    decided = 0
    for step in ("upsert", "flush", *subject.random.choices(STEPS, k=14)):
        subject.step(step)
        decided += subject.check()
    assert decided > 16 * 60 / 2, "most reads are native"


@pytest.mark.parametrize("kinds", KEYS.values(), ids=KEYS)
def test_many_keys_are_read_natively(store: Store, kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(store, kinds, seed=1, rows=200, tablets=2)
    subject.table.upsert(subject.batch(list(range(150)), []))
    for step in ("flush", "update", "upsert", "alter", "update", "delete"):
        subject.step(step)
    keys = [subject.key(number) for number in range(220)]
    expected = exact(many(subject.table, keys, native=False))
    monkeypatch.setattr(lookup, "look_up_generally", None)
    assert exact(many(subject.table, keys)) == expected
    assert len(expected) > 50


@pytest.mark.parametrize("kinds", KEYS.values(), ids=KEYS)
def test_rows_with_deltas_in_files_are_read_natively(
    store: Store, kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_OFTEN", 3)  # cells are fetched one by one at first
    subject = Subject(store, kinds, seed=8, rows=200, tablets=1)
    names = [name for name in subject.table.schema.names if name not in subject.table.primary_key]
    subject.table.upsert(subject.batch(list(range(150)), names))
    subject.table.maintain("flush")
    for _ in range(4):
        for step in ("update", "delete", "flush_deltas", "upsert", "update"):
            subject.step(step)
        keys = [subject.key(number) for number in subject.random.choices(range(220), k=100)]
        expected = exact(many(subject.table, keys, native=False))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lookup, "look_up_generally", None)
            patch.setattr(DeltaTracker, "apply_at", None)
            assert exact(many(subject.table, keys)) == expected
            for key in keys[:20]:
                assert native(store, subject.table, key) is not UNDECIDED
        for key in keys:
            assert repr(native(store, subject.table, key)) == repr(general(subject.table, key))


def test_a_key_that_shares_the_tag_of_another_is_not_taken_for_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every location found is that of another key: only a comparison shows it."""
    for kinds in KEYS.values():
        subject = Subject(store, kinds, seed=1, rows=50, tablets=1)
        subject.table.upsert(subject.batch(list(range(50)), []))
        locate = KeyLookup.locate_all
        monkeypatch.setattr(KeyLookup, "locate_all", lambda *args, locate=locate: np.roll(locate(*args), 1))
        keys = [subject.key(number) for number in range(50)]
        assert exact(many(subject.table, keys)) == exact(many(subject.table, keys, native=False))
        monkeypatch.undo()
        Database(store).drop_table("t")


def test_rows_of_many_pages_and_mini_blocks(store: Store) -> None:
    count = 70_000
    rows = pa.table({
        "k": pa.array(range(0, 2 * count, 2), pa.int64()),
        "v": pa.array([n % 1000 if n % 5 else None for n in range(count)], pa.int32()),
        "s": pa.array([f"text {n % 70}" for n in range(count)]),
        "u": pa.array([f"{n}" * (n % 3) for n in range(count)]),
        "r": pa.array([n // 1000 for n in range(count)], pa.int16()),
    })  # fmt: skip
    fields = [field.with_nullable(field.name != "k") for field in rows.schema]
    options = {"u": ColumnOptions(encoding="plain"), "r": ColumnOptions(encoding="run_length", block_rows=4096)}
    table = Database(store).create_table("t", pa.schema(fields), ["k"], column_options=options)
    table.upsert(rows.cast(table.schema))
    table.maintain("flush")
    expected = rows.to_pylist()
    for place in (0, 1, 7, 1023, 1024, 4095, 4096, 65_535, 65_536, count - 9, count - 1):
        assert native(store, table, 2 * place) == expected[place]
        assert native(store, table, 2 * place + 1) is None
    places = [*range(0, count, 777), 5, 5]
    found = many(table, [2 * place for place in places])
    assert exact(found) == exact(many(table, [2 * place for place in places], native=False))
    assert found["k"].to_pylist() == [2 * place for place in places]


@pytest.mark.parametrize("encoding", ["prefix", "fsst"])
def test_long_strings_that_are_restored(store: Store, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More memory is needed for them than there is at first."""
    texts = [f"{n:05d} " * (n * 7919 % 1300) if n % 9 else None for n in range(3000)]
    fields = [pa.field("k", pa.int64(), False), *(pa.field(name, pa.string()) for name in "ab")]
    options = {name: ColumnOptions(encoding=encoding) for name in "ab"}
    table = Database(store).create_table("t", pa.schema(fields), ["k"], column_options=options)
    table.upsert({"k": range(3000), "a": texts, "b": texts[::-1]})
    table.maintain("flush")
    wanted = [{"k": n, "a": texts[n], "b": texts[2999 - n]} for n in range(3000)]
    keys = [n for n in range(0, 3000, 3) if n % 2 or n > 2000]
    with monkeypatch.context() as patch:
        patch.setattr(lookup, "look_up_generally", None)
        patch.setattr(page_rows.PageRows, "_gathered", None)
        assert many(table, keys).to_pylist() == [wanted[n] for n in keys]
        assert [native(store, table, n) for n in keys[::7]] == [wanted[n] for n in keys[::7]]
    assert table.scan().to_arrow().sort_by("k").to_pylist() == wanted


def test_an_update_of_a_row_is_read_from_memory(store: Store) -> None:
    fields = [pa.field("k", pa.int64(), False), pa.field("a", pa.int32()), pa.field("s", pa.string())]
    table = Database(store).create_table("t", pa.schema(fields), ["k"])
    table.upsert({"k": list(range(50)), "a": list(range(50)), "s": ["old"] * 50})
    table.maintain("flush")
    for number in range(200):
        table.update({"k": [number % 7], "a": [number]})
        assert native(store, table, number % 7) == {"k": number % 7, "a": number, "s": "old"}
    table.update({"k": [3], "s": [None]})
    assert native(store, table, 3) == {"k": 3, "a": 199, "s": None}
    table.delete({"k": [3]})
    assert native(store, table, 3) is None
    table.insert({"k": [3], "a": [-1], "s": ["new"]})
    assert native(store, table, 3) == {"k": 3, "a": -1, "s": "new"}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", 128),
        ("int64", True),
        ("int64", "1"),
        ("int64", None),
        ("string", "\ud800"),
        ("string", b"bytes"),
        ("varchar(3)", "long"),
        ("date", dt.datetime(2020, 1, 1)),
        ("date", 18_262),
        ("date", "2020-01-01"),
        ("timestamp[us]", dt.date(2020, 1, 1)),
        ("timestamp[us]", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        ("timestamp[us]", 1 << 62),
        ("decimal(5,2)", Decimal("1.234")),
        ("decimal(5,2)", Decimal("NaN")),
        ("decimal(5,2)", Decimal(1000)),
        ("decimal(5,2)", 1),
        ("binary", "text"),
        ("binary", memoryview(b"view")),
    ],
)
def test_unusual_keys_take_the_general_way(store: Store, kind: str, value: Any) -> None:
    logical = LogicalType.parse(kind)
    table = Database(store).create_table("t", pa.schema([logical.field("k", False)]), ["k"])
    assert native(store, table, (value,)) is UNDECIDED
    try:
        expected = general(table, (value,))
    except InvalidArgumentError as error:
        with pytest.raises(InvalidArgumentError) as raised:
            table.get((value,))
        assert str(raised.value) == str(error)
    else:
        assert table.get((value,)) == expected


def test_a_key_outside_every_range_has_no_row(store: Store) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.int8())])
    table = Database(store).create_table("t", schema, ["k"], [by_range("k", bounds=[(0, 10), (20, 30)])])
    table.upsert({"k": [5, 25], "v": [1, 2]})
    assert [native(store, table, key) for key in (5, 15, 25, 35)] == [{"k": 5, "v": 1}, None, {"k": 25, "v": 2}, None]


def test_a_description_of_another_table_is_not_believed(store: Store) -> None:
    database = Database(store)
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.int8())])
    old = database.create_table("t", schema, ["k"])
    database.drop_table("t")
    with pytest.raises(NotFoundError):
        old.get(1)
    database.create_table("t", schema.set(0, pa.field("other", pa.int64(), False)), ["other"])
    with pytest.raises(InvalidArgumentError, match="no column 'k'"):
        old.get(1)


def test_a_dead_page_is_read_again_from_the_file(store: Store) -> None:
    table = Database(store).create_table("t", pa.schema([pa.field("k", pa.int64(), False), ("s", pa.string())]), ["k"])
    table.upsert({"k": list(range(3000)), "s": [f"text {n}" for n in range(3000)]})
    table.maintain("flush")
    (tablet,) = store._catalog.table("t").tablets
    for number in range(0, 3000, 100):
        assert native(store, table, number) == {"k": number, "s": f"text {number}"}
        tablet.version.on_disk[0].reader.pages._cache.discard_file(tablet.version.on_disk[0].reader.file_id)


def test_rows_are_whole_beside_writers_and_maintenance(store: Store) -> None:
    """Every commit sets all columns of a row to one number, and numbers rise."""
    names = ["a", "b", "c"]
    fields = [pa.field("k", pa.int64(), False), ("a", pa.int32()), ("b", pa.string()), ("c", pa.float64())]
    table = Database(store).create_table("t", pa.schema(fields), ["k"], history_max_age_seconds=1)
    keys, failures, stop = 40, [], threading.Event()

    def write(first: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            key = first + 4 * (number % (keys // 4))
            if number % 17 == 0:
                table.delete_ignore({"k": [key]})
            table.upsert({"k": [key], "a": [number], "b": [str(number)], "c": [float(number)]})

    def maintain() -> None:
        random = Random(1)
        while not stop.is_set():
            table.maintain(random.choice(("flush", "flush_deltas", "minor_compact", "major_compact", "compact", "gc")))

    def run(work: Any, *args: Any) -> None:
        try:
            work(*args)
        except BaseException as error:
            failures.append(error)
            stop.set()

    threads = [threading.Thread(target=run, args=(write, first)) for first in range(4)]
    threads.append(threading.Thread(target=run, args=(maintain,)))
    for thread in threads:
        thread.start()
    newest, decided = dict.fromkeys(range(keys), 0), 0
    try:
        while decided < 3000 and not failures:
            for key in range(keys):
                row = native(store, table, key)
                if row is UNDECIDED or row is None:
                    continue
                decided += 1
                number = row["a"]
                assert row == {"k": key, "a": number, "b": str(number), "c": float(number)}, names
                assert number >= newest[key]
                newest[key] = number
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures
