"""Work on a store that any version of Nyala can do: by the public names that 0.1.0 had, and nothing of this checkout.

    python program.py write TARGET NOTES SEED FIRST LAST [kill]
    python program.py read TARGET NOTES SEED LAST
    python program.py newer TARGET NOTES SEED NAME
    python program.py is_newer TARGET NOTES SEED NAME

``TARGET`` is a directory, or the locations of servers. The steps ``FIRST`` to ``LAST`` follow from the seed alone. The
rows of every moment are therefore known, whoever wrote them: ``NOTES`` has the number of each step that was
acknowledged, with its timestamp. ``read`` compares the tables of now, and of earlier moments, with a model. With
``kill`` the process ends like one that was killed. ``newer`` makes a table or a right that 0.1.0 did not know, and
``is_newer`` looks for it.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import nyala

Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row]

_EPOCH = dt.datetime(2024, 2, 29)
_WORDS = ("", "a", "Oslo", "na\u00efve", "x" * 300)
SCHEMAS = {
    "kinds": pa.schema(
        [
            pa.field("k", pa.int64(), False),
            ("flag", pa.bool_()),
            ("small", pa.int8()),
            ("whole", pa.int32()),
            ("single", pa.float32()),
            ("double", pa.float64()),
            ("money", pa.decimal128(12, 2)),
            ("text", pa.string()),
            ("raw", pa.binary()),
            ("day", pa.date32()),
            ("moment", pa.timestamp("us")),
        ]
    ),
    "places": pa.schema(
        [
            pa.field("city", pa.string(), False),
            pa.field("n", pa.int32(), False),
            ("v", pa.float64()),
            ("w", pa.string()),
        ]
    ),
}
KEYS = {"kinds": ["k"], "places": ["city", "n"]}
_MAINTENANCE = ("flush", "flush_deltas", "minor_compact", "major_compact", "compact")


def _cell(random: Random, kind: pa.DataType) -> Any:
    number = random.randrange(-100, 100)
    if random.random() < 0.1:
        return None
    if pa.types.is_boolean(kind):
        return number < 0
    if pa.types.is_integer(kind):
        return number
    if pa.types.is_floating(kind):
        return number / 4
    if pa.types.is_decimal(kind):
        return Decimal(number).scaleb(-2)
    if pa.types.is_string(kind):
        return random.choice(_WORDS)
    if pa.types.is_binary(kind):
        return random.randbytes(number % 7)
    if pa.types.is_date32(kind):
        return (_EPOCH + dt.timedelta(days=number)).date()
    return _EPOCH + dt.timedelta(microseconds=number)


def _key(random: Random, table: str) -> tuple[Any, ...]:
    if table == "kinds":
        return (random.randrange(-2_000, 2_000),)
    return random.choice(("Bergen", "Oslo", "Troms\u00f8")), random.randrange(400)


class Model:
    """The rows of both tables after some steps."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.tables: dict[str, Rows] = {name: {} for name in SCHEMAS}
        self.steps = 0

    def step(self) -> tuple[str, str, pa.Table, str | None]:
        """Do the next step: return its table, its operation, its rows, and the maintenance that follows it."""
        random = Random(f"{self._seed}/{self.steps}")
        self.steps += 1
        name = random.choice(list(SCHEMAS))
        rows, schema, key = self.tables[name], SCHEMAS[name], KEYS[name]
        op = random.choice(("insert", "upsert", "upsert", "update", "delete"))
        keys = {_key(random, name) for _ in range(random.choice((1, 1, 3, 40, 400)))}
        keys = {each for each in keys if op == "upsert" or (each in rows) != (op == "insert")}
        values = [field.name for field in schema if field.name not in key]
        columns = {"insert": values, "delete": []}.get(op) or random.sample(values, random.randint(1, len(values)))
        if op == "delete":
            columns = []
        batch: list[Row] = []
        for each in sorted(keys):
            cells = {column: _cell(random, schema.field(column).type) for column in columns}
            batch.append(dict(zip(key, each, strict=True)) | cells)
            if op == "delete":
                del rows[each]
            else:
                rows[each] = dict.fromkeys(schema.names) | rows.get(each, {}) | batch[-1]
        sent = pa.schema([schema.field(column) for column in (*key, *columns)])
        maintenance = random.choice(_MAINTENANCE) if random.random() < 0.2 else None
        return name, op, pa.Table.from_pylist(batch, sent), maintenance


def opened(target: str) -> Any:
    """Return the database at a directory, or of the server at a location."""
    return nyala.connect(target.split(",") if "," in target else target) if "://" in target else nyala.open(target)


def write(target: str, notes: Path, seed: int, first: int, last: int, is_killed: bool) -> None:
    """Do some steps, and note each. With ``first`` 0 the tables are made."""
    model = Model(seed)
    db = opened(target)
    if not first:
        for name, schema in SCHEMAS.items():
            parts = [nyala.hash("city", buckets=3)] if name == "places" else []
            db.create_table(name, schema, KEYS[name], partition_by=parts)
    with notes.open("a") as lines:
        while model.steps < last:
            number = model.steps
            name, op, rows, maintenance = model.step()
            if number < first or not rows.num_rows:
                continue
            table = db.table(name)
            result = getattr(table, op)(rows)
            assert result.applied == rows.num_rows, (number, result)
            print(json.dumps([number, result.timestamp]), file=lines, flush=True)
            if maintenance:
                table.maintain(maintenance)
    if is_killed:
        os._exit(0)
    db.close()


def read(target: str, notes: Path, seed: int, last: int) -> int:
    """Compare the tables with the model, now and at up to eight moments before. Return the count of rows compared."""
    noted = [json.loads(line) for line in notes.read_text().splitlines()]
    chosen = dict(Random(f"{seed}/{last}").sample(noted, min(len(noted), 8)))
    model, compared = Model(seed), 0
    db = opened(target)
    while model.steps < last:
        model.step()
        if moment := chosen.get(model.steps - 1):
            compared += sum(_compared(db, model, name, moment) for name in SCHEMAS)
    compared += sum(_compared(db, model, name, None) for name in SCHEMAS)
    for name, rows in model.tables.items():
        for key in list(rows)[:20]:
            assert db.table(name).get(key) == rows[key], (name, key)
    db.close()
    return compared


def _compared(db: Any, model: Model, name: str, moment: int | None) -> int:
    at = {} if moment is None else {"as_of": moment}
    rows = {
        tuple(row[column] for column in KEYS[name]): row for row in db.table(name).scan(**at).to_arrow().to_pylist()
    }
    expected = model.tables[name]
    wrong = {key for key in rows.keys() | expected.keys() if rows.get(key) != expected.get(key)}
    for key in sorted(wrong)[:3]:
        print(f"{name} after step {model.steps - 1}, {key}: {rows.get(key)}, not {expected.get(key)}", file=sys.stderr)
    assert not wrong, f"{len(wrong)} of {len(expected)} rows of {name} are wrong"
    return len(rows)


def _make_newer(db: Any, name: str) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), False), ("at", pa.timestamp("us")), ("n", pa.int64())])
    if name == "nested":
        schema = schema.append(pa.field("tags", pa.list_(pa.string())))
    options: dict[str, Any] = {
        "expiry": {"ttl": "30d"},
        "order": {"order_by": "at"},
        "computed": {"column_options": {"n": {"default_expression": "k + 1"}}},
        "row_column": {"row_column": True},
        "quota": {"max_rows": 100},
    }.get(name, {})
    table = db.create_table("newer", schema, ["k"], **options)
    if name == "grants":
        db.grant("read", "newer", to="reader")
    table.insert({"k": [1], "at": [_EPOCH]})
    table.maintain("flush")


def _is_newer(db: Any, name: str) -> None:
    (row,) = db.table("newer").scan().to_arrow().to_pylist()
    assert row["k"] == 1 and row["n"] == (2 if name == "computed" else None), row
    assert bool(db.grants()) == (name == "grants")


def main() -> None:
    """Do as the command line says; print a number of rows."""
    verb, target, notes, seed, *rest = sys.argv[1:]
    if verb == "write":
        write(target, Path(notes), int(seed), int(rest[0]), int(rest[1]), "kill" in rest)
    elif verb in ("newer", "is_newer"):
        db = opened(target)
        (_make_newer if verb == "newer" else _is_newer)(db, rest[0])
        db.close()
    else:
        print(read(target, Path(notes), int(seed), int(rest[0])))


if __name__ == "__main__":
    main()
