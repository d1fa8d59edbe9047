"""``where`` as a pyarrow expression: what it selects is what pyarrow selects, and what it cannot say is named."""

from __future__ import annotations

import datetime as dt
import math
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from nyala.clients.api.database import Database
from nyala.clients.convert.where import where_json
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import InvalidArgumentError

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("small", pa.int8()),
        ("number", pa.int64()),
        ("ratio", pa.float64()),
        ("narrow", pa.float32()),
        ("word", pa.string()),
        ("ok", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("cents", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
    ]
)
ROWS = pa.table(
    {
        "id": range(8),
        "small": [None, -128, 0, 1, 2, 3, 127, 5],
        "number": [1, None, -(2**63), 2**63 - 1, 2**53 + 1, 0, 5, 5],
        "ratio": [None, math.nan, math.inf, -math.inf, 0.1, 2.5, -2.5, 1.0],
        "narrow": [0.1, None, math.nan, 1.5, -1.5, math.inf, 0.5, 3.0],
        "word": ["", None, "a", "ab", "abc", "a%b", "zz\0z", "\xe9t\xe9"],
        "ok": [True, False, None, True, False, None, True, False],
        "day": [None, *(dt.date(2024, 1, day) for day in range(1, 8))],
        "at": [None, *(dt.datetime(2024, 1, day, 12) for day in range(1, 8))],
        "cents": [None, *(Decimal(n) / 4 for n in range(-3, 4))],
        "raw": [None, b"", b"\0", b"ab", b"ab\0", b"\xff", b"a", b"b"],
    },
    SCHEMA,
)
NOON = dt.datetime(2024, 1, 3, 12)


def f(name: str) -> pc.Expression:
    return pc.field(name)


SAME_AS_PYARROW = [
    f("number") > 4,
    5 == f("number"),  # noqa: SIM300
    pc.scalar(4) < f("number"),
    f("number") <= 2**53,
    f("small") < 300,
    f("small") > 2.5,
    f("small") == pa.scalar(5, pa.uint64()),
    f("ratio") > 0.5,
    f("ratio") != 2.5,
    ~(f("ratio") < 1),
    f("ratio").is_nan(),
    ~f("ratio").is_nan(),
    f("ratio").is_null(nan_is_null=True),
    f("ratio").is_null(),
    ~f("ratio").is_valid(),
    f("ratio").isin([2.5, math.nan]),
    f("narrow") == 1.5,
    f("word") == "ab",
    f("word") == pa.scalar("ab", pa.large_string()),
    f("word") == pa.scalar("ab").cast(pa.dictionary(pa.int8(), pa.string())),
    f("word").isin(["a", "ab", "none"]),
    ~f("word").isin(["a", "ab"]),
    f("word").isin(["a", None]),
    ~f("word").isin(["a", None]),
    f("word").isin(pa.array([], pa.string())),
    pc.is_in(f("word"), value_set=pa.array(["a", None]), skip_nulls=True),
    pc.starts_with(f("word"), "a%"),
    pc.ends_with(f("word"), "b"),
    pc.match_substring(f("word"), "\0"),
    pc.match_like(f("word"), "a_c"),
    f("ok"),
    ~f("ok"),
    f("ok") | (f("number") == 5),
    (f("ok") & (f("number") > 0)) | f("word").is_null(),
    ~((f("number") > 4) & (f("word") == "ab")),
    f("day") >= dt.date(2024, 1, 4),
    f("at") < NOON,
    f("at") <= pa.scalar(NOON, pa.timestamp("ns")),
    f("at") <= pa.scalar(NOON, pa.timestamp("s")),
    f("at").isin([NOON]),
    f("cents") >= Decimal("0.25"),
    f("cents") == pc.scalar(Decimal("0.5")),
    f("raw") == b"ab\0",
    f("raw") >= b"a",
    pc.scalar(True),
    pc.scalar(False) | f("ok"),
    f("number") == pc.scalar(5).cast(pa.int16()),
]


@pytest.fixture(scope="module")
def shared():
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        table = Database(store).create_table("rows", SCHEMA, ["id"])
        table.insert(ROWS)
        yield table


@pytest.mark.parametrize("expression", SAME_AS_PYARROW, ids=str)
def test_selects_what_pyarrow_selects(shared, expression):
    expected = ROWS.filter(expression)["id"].to_pylist()
    assert shared.scan(["id"], where=expression, ordered=True).to_arrow()["id"].to_pylist() == expected


def test_selects_over_flight_too(homes):
    homes.insert({"id": [1, 2, 3], "day": [dt.date(2024, 1, 1), dt.date(2024, 1, 2), None]})
    found = homes.scan(["id"], where=(f("day") >= dt.date(2024, 1, 2)) | (f("id") == 1), ordered=True).to_arrow()
    assert found["id"].to_pylist() == [1, 2]


def test_keeps_what_arrow_cannot_compare(shared):
    """Arrow refuses these comparisons, or makes one side coarser; the literal keeps its value."""

    def count(where: pc.Expression) -> int:
        return shared.scan(where=where).count()

    assert count(f("number") > 2.5) == 4
    assert count(f("cents") > 0) == 3
    assert count(f("cents") > Decimal("0.2499999")) == 3
    assert count(f("narrow") == 0.1) == 1, "rounded to the column's type, as in SQL text"
    assert count(f("day") < NOON) == 3
    assert count(f("at") < pa.scalar(1_704_283_200_000_000_001, pa.timestamp("ns"))) == 3
    assert count(f("at") == dt.datetime(2024, 1, 3, 14, tzinfo=dt.timezone(dt.timedelta(hours=2)))) == 1


def test_times_keep_their_nanoseconds(homes):
    kind = pa.time64("ns")
    times = pa.array([0, 1, 1_001, 86_399_999_999_999, None], pa.int64()).cast(kind)
    homes.alter().add_column("time", kind).apply()
    rows = pa.table({"id": range(5), "time": times})
    homes.insert(rows)

    def selected(where: object) -> list[int]:
        return homes.scan(["id"], where=where, ordered=True).to_arrow()["id"].to_pylist()

    for time in times.drop_null():
        for where in (f("time") == time, f("time") < time, ~(f("time") <= time), f("time").isin(pa.array([time]))):
            assert selected(where) == rows.filter(where)["id"].to_pylist()
        assert selected([("time", "=", time)]) == selected([("time", "in", [time])]) == selected(f("time") == time)
    with pytest.raises(InvalidArgumentError, match="finer than a microsecond"):
        homes.alter().add_column("late", kind, read_default=times[1]).apply()


def test_chains_of_any_length():
    chain = f("a") == 0
    for number in range(3_000):
        chain = chain | (f("a") == number)
    tree = where_json(chain)
    assert isinstance(tree, dict) and len(tree["args"]) == 3_001


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (f("a") + 1 == 2, "add_checked"),
        (f("a") == f("b"), "column 'a' can be compared only with a literal"),
        (f("a") == None, r"pc.field\('a'\).is_null"),  # noqa: E711
        (f("a") != pa.scalar(None, pa.int64()), "is_valid"),
        (pc.utf8_lower(f("a")) == "x", "utf8_lower"),
        (f("a").cast(pa.int8()) == 1, "a column cannot be cast"),
        (pc.if_else(f("a"), f("b"), f("c")), "if_else"),
        (pc.match_like(f("a"), "x", ignore_case=True), "ignore_case"),
        (pc.field(0) == 1, "instead of giving its position"),
        (pc.field(("a", "b")) == 1, "nested"),
        (pc.scalar(1), "is not a condition"),
        (f("a") == pa.scalar([1]), "cannot be a literal"),
        (pc.scalar("x").cast(pa.int8()) == f("a"), "cannot be cast"),
    ],
    ids=str,
)
def test_what_no_filter_can_say_is_named(wrong, why):
    with pytest.raises(InvalidArgumentError, match=why):
        where_json(wrong)


def test_a_column_that_is_not_there(shared):
    with pytest.raises(InvalidArgumentError, match="no column 'nothing'; the columns are id, small"):
        shared.scan(where=f("nothing") == 1).to_arrow()


def test_clients_do_not_import_pyarrow_compute():
    code = "import nyala, nyala.clients.api.database, sys; sys.exit('pyarrow.compute' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("wrong", ["abc", 5, {"a": 1}])
def test_tuples_take_lists_only(wrong):
    with pytest.raises(InvalidArgumentError, match="list of values"):
        where_json([("a", "in", wrong)])


def test_tuples_name_the_types_of_their_literals():
    tree = where_json([[("d", "=", dt.date(2024, 1, 1))], [("c", "not in", {Decimal("1.50")}), ("n", "!=", None)]])
    assert tree == {
        "op": "or",
        "args": [
            {"op": "and", "args": [{"op": "=", "column": "d", "value": {"date": "2024-01-01"}}]},
            {
                "op": "and",
                "args": [
                    {"op": "not_in", "column": "c", "values": [{"decimal": "1.50"}]},
                    {"op": "is_not_null", "column": "n"},
                ],
            },
        ],
    }


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_a_list_of_100_000_values(homes, kind):
    homes.insert({"id": [1, 99_999, 200_000], "city": ["Oslo", "city 99999 of a long name, so that it takes room", ""]})
    if kind == "int64":
        where = f("id").isin(pa.array(range(100_000)))
    else:
        where = f("city").isin([f"city {number} of a long name, so that it takes room" for number in range(100_000)])
    assert homes.scan(where=where).count() == (2 if kind == "int64" else 1)
    assert homes.scan(where=where).to_arrow()["id"].to_pylist()[-1] == 99_999
