"""Work that runs kernels, small enough for plain Python, as a process.

    NUMBA_DISABLE_JIT=1 python -m tests.campaigns.bounds.work

Writes, as JSON, the kernels that ran and those that there are.
"""

from __future__ import annotations

import tests.campaigns.bounds.checked as checked  # isort: skip  (before all kernels)

import datetime as dt
import inspect
import json
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.kernels.ahead.kernel import KERNELS
from nyala.engine.kernels.compile.inventory import import_all
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.table.column import ColumnOptions
from nyala.schemas.table.partition import hash
from nyala.schemas.table.partition import range as ranges
from tests.campaigns.bounds.parts import run_parts
from tests.doubles.kept_reader import KeptReader

_OPTIONS = StoreOptions(maintenance="off")
_ROWS = 1_100  # a whole mini-block, and one that ends in the middle
_KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "i8": (pa.int8(), lambda n: n % 100),
    "i16": (pa.int16(), lambda n: n % 1000),
    "i32": (pa.int32(), lambda n: n * 7),
    "i64": (pa.int64(), lambda n: n * n),
    "f": (pa.float32(), lambda n: n / 4),
    "d": (pa.float64(), lambda n: n / 10),
    "b": (pa.bool_(), lambda n: n % 3 == 0),
    "day": (pa.date32(), lambda n: dt.date(2020, 1, 1) + dt.timedelta(days=n % 50)),
    "wide": (pa.decimal128(38, 2), lambda n: Decimal(n)),
    "s": (pa.string(), lambda n: f"text {n % 9}"),
    "u": (pa.string(), lambda n: f"unlike {n * 31}" * (n % 3)),
    "v": (pa.string(), lambda n: f"https://example.org/{n * 7919 % 1000}"),
    "far": (pa.int64(), lambda n: n << 50 if n % 97 == 0 else n),
    "few": (pa.int64(), lambda n: n * n % 7 * 1_234_567_890_123_457),
    "doc": (pa.json_(), lambda n: f'{{"a": [{n % 9}, true, "\\u00e9\\ud83d\\ude00"], "b": {{"c": -{n}.5e1}}}}'),
}
_ENCODINGS = {
    "i16": "run_length",
    "i32": "frame_of_reference",
    "d": "alp",
    "u": "prefix",
    "f": "plain",
    "v": "fsst",
    "far": "frame_of_reference",
    "few": "frame_of_reference",
}


def main() -> None:
    """See the module."""
    _tables()
    _nested_cells()
    _searched_keys()
    _messages()
    run_parts()
    outcome = {"ran": sorted(checked.RAN), "kernels": _kernels()}
    sys.stdout.write(json.dumps(outcome))


def _kernels() -> list[str]:
    """Return the kernels that Python calls and that take numbers, which may be addresses."""
    import_all()
    found = []
    for kernel in KERNELS:
        function = inspect.unwrap(kernel)
        if not function.__name__.startswith("_") and inspect.signature(function).parameters:
            found.append(f"{function.__module__}.{function.__name__}")
    return sorted(found)


def _tables() -> None:
    disk = MemoryFileSystem()
    for keys in (["id"], ["name", "id"]):
        with Database(Store.open(disk, _OPTIONS)) as database:
            name = f"t{len(keys)}"
            keyed = {"id": pa.field("id", pa.int64(), False), "name": pa.field("name", pa.string(), False)}
            fields = [*(keyed.pop(key) for key in keys), *keyed.values()]
            fields += [pa.field(each, kind) for each, (kind, _) in _KINDS.items()]
            options = {each: ColumnOptions(encoding=encoding) for each, encoding in _ENCODINGS.items()}
            _use(database.create_table(name, pa.schema(fields), keys, column_options=options), keys)
        with Database(Store.open(disk, _OPTIONS)) as database:  # replays the log
            assert database.table(name).count() > 0


def _nested_cells() -> None:
    tags = pa.list_(pa.struct([("n", pa.int16()), ("w", pa.string())]))
    spots = pa.map_(pa.string(), pa.list_(pa.bool_(), 2))
    schema = pa.schema([pa.field("id", pa.int64(), False), ("tags", tags), ("spots", spots)])
    rows = [
        {
            "id": number,
            "tags": [[{"n": number, "w": None}, None, {"n": None, "w": "w"}], None, []][number % 3],
            "spots": [("a", [True, None]), ("b", None)][: number % 4] or None,
        }
        for number in range(120)
    ]
    with Database(Store.open(MemoryFileSystem(), _OPTIONS)) as database:
        table = database.create_table("nested", schema, ["id"])
        for first in (0, 40):
            table.upsert(pa.Table.from_pylist(rows[first : first + 80], schema))
            table.maintain("flush")
        table.maintain("compact")
        assert table.scan(ordered=True).to_arrow().to_pylist() == rows
        assert table.get(7) == rows[7]


def _searched_keys() -> None:
    """Keys that no index has, so that they are searched for; those of several columns also choose a tablet."""
    kinds = {"tiny": pa.int8(), "small": pa.int16(), "half": pa.int32(), "id": pa.int64(), "wide": pa.decimal128(38, 2)}
    several = [pa.field(name, kind, False) for name, kind in (*kinds.items(), ("s", pa.string()))]
    levels = [hash(*kinds, buckets=2, seed=7), hash("s", buckets=2), ranges("s", splits=["text 4"])]
    options = _OPTIONS.model_copy(update={"key_index_bytes": 0})
    with Database(Store.open(MemoryFileSystem(), options)) as database:
        tables = {"several": (several, levels), "one": (several[3:4], []), "text": (several[5:], [])}
        for name, (fields, partition_by) in tables.items():
            schema = pa.schema([*fields, ("cell", pa.int64())])
            table = database.create_table(name, schema, [field.name for field in fields], partition_by)
            rows = [_wide_row(number, schema.names) for number in range(70)]
            table.upsert(pa.Table.from_pylist(rows[:60], schema))
            table.maintain("flush")
            table.upsert(pa.Table.from_pylist(rows[40:], schema))
            table.maintain("flush")
            for row in rows[::9]:
                table.upsert([row | {"cell": 0}])
            keys = [tuple(row.values())[:-1] for row in rows]
            assert table.get_many(keys if len(fields) > 1 else [key for (key,) in keys]).num_rows == 70
            assert [table.get(key) for key in keys[::9]] == [row | {"cell": 0} for row in rows[::9]]


def _messages() -> None:
    """Rows whose cells are Arrow's, few and many, without NULLs and with them."""
    fields = [pa.field("id", pa.int64(), False), ("n", pa.int16()), ("s", pa.string())]
    rows = [
        {"id": number, "n": [None, number][number % 2], "s": [None, "", "x" * 9][number % 3]} for number in range(300)
    ]
    with Database(Store.open(MemoryFileSystem(), _OPTIONS)) as database:
        table = database.create_table("messages", pa.schema(fields), ["id"])
        table.upsert(pa.Table.from_pylist(rows, table.schema))
        table.maintain("flush")
        for count in (9, 300):
            assert table.get_many({"id": range(count)}).to_pylist() == rows[:count]
            assert table.scan(where=f"id < {count}", ordered=True, limit=20).to_arrow().to_pylist() == rows[:count][:20]


def _wide_row(number: int, names: list[str]) -> dict[str, Any]:
    row = {"tiny": number, "small": -number, "half": number << 20, "id": number << 40, "wide": Decimal(number << 80)}
    row |= {"s": f"text {number % 9} {number * 7919}", "cell": number}
    return {name: row[name] for name in names}


def _rows(table: Table, numbers: range, shift: int = 0) -> pa.Table:
    columns: dict[str, Any] = {"id": list(numbers), "name": [f"n\0{n % 5}" for n in numbers]}
    for each, (_, value) in _KINDS.items():
        columns[each] = [None if (n + shift) % 7 == 0 else value(n + shift) for n in numbers]
    return pa.table({each: columns[each] for each in table.schema.names}, table.schema)


def _use(table: Table, keys: list[str]) -> None:
    def key(number: int) -> Any:
        return number if len(keys) == 1 else (f"n\0{number % 5}", number)

    rows = _ROWS if len(keys) == 1 else 100
    table.upsert(_rows(table, range(0, 2 * rows, 2)))
    _read(table, [key(number) for number in range(0, 60, 3)])
    table.maintain("flush")
    table.upsert(_rows(table, range(1, rows // 3, 2)))
    table.maintain("flush")
    _read(table, [key(number) for number in range(0, 2000, 90)])
    since = table._store.now()
    for number in (0, 2 * rows, 2 * rows + 1):
        table.upsert(_rows(table, range(number, number + 1)).to_pylist())
    for step in ("flush_deltas", "", "compact") if rows < _ROWS else ("flush_deltas", "minor_compact", "major_compact"):
        table.upsert(_rows(table, range(0, 90), shift=3))
        between = table._store.now()
        table.delete_ignore(_rows(table, range(3, 60, 5)).select(keys))
        _read(table, [key(number) for number in range(0, 100, 7)], is_short=step == "minor_compact")
        table.scan(columns=["id", "s"], as_of=between).to_arrow()
        if step:
            table.maintain(step)
    for seq, number in enumerate((5, 6, 5)):  # what is in the log, and in no file
        table.upsert(_rows(table, range(number, number + 1), shift=seq), writer="w" * (seq % 2 + 1), seq=seq)
    table.scan(as_of=since).to_arrow()
    table.changes(since, every=True, before=True).to_arrow()


def _read(table: Table, keys: list[Any], is_short: bool = False) -> None:
    answers = KeptReader(table._store)  # pyright: ignore[reportArgumentType]
    for key in keys[:5]:
        cells = key if isinstance(key, tuple) else (key,)
        assert repr(answers.get(table.name, cells)) == repr(table.get(key)) == repr(answers.get(table.name, cells))
    table.get_many(keys)
    table.scan(ordered=True).to_arrow()
    if is_short:
        return
    table.scan(where="i32 > 900 AND s = 'text 3' AND u LIKE 'unlike%' AND d < 90.5").to_arrow()
    table.scan(where="i64 IN (1, 4, 9, 16, 25, 36, 49, 64, 81, 100) OR b OR f = 0.5").to_arrow()
    table.scan().aggregate(
        {"n": ("id", "count"), "total": ("i64", "sum"), "least": ("f", "min"), "last": ("s", "max")}, ["i8"]
    )
    table.scan().aggregate({"total": ("d", "sum"), "whole": ("i32", "sum")}, ["s"])
    table.scan().aggregate({"total": ("d", "sum"), "whole": ("i64", "sum")})
    some = table.scan(
        where="(i32 > 900 OR f IN (0.5, 1.5) OR s IN ('text 1', 'text 5') OR b IS NULL) AND d IS NOT NULL"
    )
    ends = {"least": ("i16", "min"), "most": ("f", "max"), "last": ("day", "max"), "n": ("*", "count")}
    some.aggregate({**ends, "total": ("d", "sum"), "whole": ("i64", "sum")})
    some.aggregate({**ends, "total": ("f", "sum"), "known": ("b", "count")}, ["s", "b"])
    table.scan(where="doc ->> '$.a[-1]' = 'x' OR doc -> 'b' ->> 'c' = '-3.5e1'").to_arrow()
    table.scan(where=f"far IN ({', '.join(str(number << 40) for number in range(20))})").to_arrow()


if __name__ == "__main__":
    main()
