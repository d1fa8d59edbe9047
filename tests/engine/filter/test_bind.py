"""Binding: literals keep their mathematical meaning, NOT reaches the leaves, and errors name the column."""

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from nyala.engine.expression.building import DEPTH_MAX
from nyala.engine.expression.parse import parse_filter
from nyala.engine.filter.bound import And, BoundFilter, Compare, NullTest, OneOf, Or
from nyala.engine.filter.evaluate import select
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.rows.predicate import Comparison, InList, Junction, Like, Not
from tests.engine.filter import model
from tests.engine.filter.model import OPS, bind, table_of

LIMITS = Limits()
TYPES = {
    "k": "int32",
    "i8": "int8",
    "i64": "int64",
    "b": "bool",
    "d": "date",
    "t": "timestamp[us]",
    "f": "float",
    "g": "double",
    "p": "decimal(5,2)",
    "w": "decimal(38,10)",
    "s": "string",
    "v": "varchar(3)",
    "y": "binary",
}
SCHEMA = table_of([(name, kind, name != "k") for name, kind in TYPES.items()])
TRUE, FALSE = And(()), Or(())
DAY = (dt.date(2024, 5, 31) - dt.date(1970, 1, 1)).days
NOON = DAY * 86_400_000_000 + 43_200_000_000


def _id(name):
    return SCHEMA.column(name).id


def _root(text):
    return bind(parse_filter(text, LIMITS), SCHEMA).root


def _known(name):
    return NullTest(_id(name), is_null=False)


def _summary(name, node):
    """A leaf as (op, cell), a constant as its name."""
    if node in (TRUE, FALSE):
        return "TRUE" if node == TRUE else "FALSE"
    if node == _known(name):
        return "known"
    if isinstance(node, OneOf):
        return ("not in" if node.negated else "in", *node.cells)
    assert isinstance(node, Compare)
    return (node.op, node.cell)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i8 > 2.5", (">", 2)),
        ("i8 >= 2.5", (">", 2)),
        ("i8 < 2.5", ("<=", 2)),
        ("i8 < -2.5", ("<=", -3)),
        ("i8 = 2.0", ("=", 2)),
        ("i8 = 2.5", "FALSE"),
        ("i8 <> 2.5", "known"),
        ("NOT i8 = 2.5", "known"),
        ("NOT i8 > 2.5", ("<=", 2)),
        ("i8 < 1e30", "known"),
        ("i8 > 1e999999999", "FALSE"),
        ("i8 > -1e999999999", "known"),
        ("i8 = 1e-999999999", "FALSE"),
        ("i8 < 0e999999999", ("<", 0)),
        ("i8 < 1e-999999999", ("<=", 0)),
        ("i8 > -1e-999999999", (">", -1)),
        ("i8 <= 127", "known"),
        ("i8 < 128", "known"),
        ("i8 >= -128", "known"),
        ("i8 > 127", "FALSE"),
        ("i8 < -128", "FALSE"),
        ("i8 = 128", "FALSE"),
        ("i64 = 9223372036854775808", "FALSE"),
        ("i64 > 9223372036854775806", (">", 2**63 - 2)),
        ("p = 1.25", ("=", 125)),
        ("p = 1.255", "FALSE"),
        ("p < 1.255", ("<=", 125)),
        ("p > -1.255", (">", -126)),
        ("p < 1000", "known"),
        ("p <= 999.99", "known"),
        ("w = 1.0000000001", ("=", 10**10 + 1)),
        ("g = 0.1", ("=", 0.1)),
        ("f = 0.1", ("=", float(np.float32(0.1)))),
        ("f < 1e39", ("<=", float(np.finfo(np.float32).max))),
        ("f = 1e39", "FALSE"),
        ("g > -1e400", (">", -math.inf)),
        ("g = 9007199254740993", ("=", 9007199254740992.0)),
        ("d = '2024-05-31'", ("=", DAY)),
        ("d = 5", ("=", 5)),
        ("d >= TIMESTAMP '2024-05-31 12:00:00'", (">", DAY)),
        ("d < TIMESTAMP '2024-05-31 12:00:00'", ("<=", DAY)),
        ("d = '2024-05-31 12:00:00'", "FALSE"),
        ("d = TIMESTAMP '2024-06-01 01:00:00+01:00'", ("=", DAY + 1)),
        ("t = DATE '2024-05-31'", ("=", DAY * 86_400_000_000)),
        ("t = '2024-05-31 12:00:00'", ("=", NOON)),
        ("t = '2024-05-31T14:00:00+02:00'", ("=", NOON)),
        ("t = '2024-05-31 12:00:00Z'", ("=", NOON)),
        ("t < '2024-05-31 12:00:00.000000001'", ("<=", NOON)),
        ("t = '2024-05-31 12:00:00.000000000'", ("=", NOON)),
        ("t >= '0001-01-01 00:00:00+10:00'", (">=", -62135596800000000 - 36_000_000_000)),
        ("b", ("=", 1)),
        ("NOT b", ("<>", 1)),
        ("b <= TRUE", "known"),
        ("v = 'longer'", ("=", b"longer")),
        ("s = '\xe9'", ("=", b"\xc3\xa9")),
        ("y = X'00ff'", ("=", b"\x00\xff")),
        ("y = '\xe9'", ("=", b"\xc3\xa9")),
        ("i8 IN (3, 1, 2.5, 3.0, 1000, 2)", ("in", 1, 2, 3)),
        ("i8 NOT IN (3, 1, 2.5)", ("not in", 1, 3)),
        ("i8 IN (2.5, 3)", ("=", 3)),
        ("i8 NOT IN (2.5, 3)", ("<>", 3)),
        ("i8 IN (2.5)", "FALSE"),
        ("i8 NOT IN (2.5)", "known"),
        ("i8 IN ()", "FALSE"),
        ("i8 NOT IN ()", "TRUE"),
        ("g IN (0.0, -0.0)", ("=", 0.0)),
        ("s LIKE 'abc'", ("=", b"abc")),
        ("s LIKE '%'", "known"),
        ("s NOT LIKE '%%'", "FALSE"),
        ("k IS NULL", "FALSE"),
        ("k < 1e30", "TRUE"),
        ("s LIKE 'a' OR TRUE", "TRUE"),
        ("i8 = 1 AND FALSE", "FALSE"),
        ("i8 = 1 AND k IS NOT NULL", ("=", 1)),
    ],
)
def test_literals_keep_their_meaning(text, expected):
    name = text.removeprefix("NOT ").split()[0]
    assert _summary(name, _root(text)) == expected


def test_every_int8_against_every_kind_of_number():
    values = np.arange(-128, 128).astype(np.int8)
    vectors = {_id("i8"): FixedVector(values)}
    for literal in [
        "-1e9",
        "-129",
        "-128.5",
        "-128",
        "-127.5",
        "-0.5",
        "0",
        "0.5",
        "126.5",
        "127",
        "127.5",
        "128",
        "1e9",
    ]:
        for op, compare in OPS.items():
            for text, expected in ((f"i8 {op} {literal}", True), (f"NOT i8 {op} {literal}", False)):
                found = select(bind(parse_filter(text, LIMITS), SCHEMA), vectors, 256)
                number = Fraction(literal)
                assert found.tolist() == [compare(int(value), number) is expected for value in values], text


@pytest.mark.parametrize("op", list(OPS))
@pytest.mark.parametrize("name", ["f", "g"])
@pytest.mark.parametrize("literal", ["nan", "inf", "-inf", "0.0", "-0.0"])
def test_floats_compare_as_ieee_754_says(op, name, literal):
    cells = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0]
    vectors = {_id(name): FixedVector(np.array(cells, np.float32 if name == "f" else np.float64))}
    predicate = Comparison(op=op, column=name, value={"float": literal})
    expected = [OPS[op](cell, float(literal)) for cell in cells]
    assert select(bind(predicate, SCHEMA), vectors, 6).tolist() == expected
    opposite = select(bind(Not(op="not", arg=predicate), SCHEMA), vectors, 6)
    assert opposite.tolist() == [not answer for answer in expected]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("g", 0.5),
        ("g", "0.5"),
        ("g", {"decimal": "0.5"}),
        ("g", Decimal("0.5")),
        ("p", 0.5),
        ("p", "0.5"),
        ("p", Decimal("0.50")),
        ("y", b"x"),
        ("d", dt.date(2024, 5, 31)),
        ("t", dt.datetime(2024, 5, 31, 14, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
        ("t", NOON),
    ],
)
def test_json_and_python_values_are_literals_too(name, value):
    cells = {"g": 0.5, "p": 50, "y": b"x", "d": DAY, "t": NOON}
    root = bind(Comparison(op="=", column=name, value=value), SCHEMA).root
    assert _summary(name, root) == ("=", cells[name])


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("i8", "5", "'5'"),
        ("i8", True, "True"),
        ("i8", [0, [5], 0], "[0, [5], 0]"),
        ("i8", {"date": "2024-05-31"}, "'2024-05-31'"),
        ("g", "five", "'five'"),
        ("p", True, "True"),
        ("p", {"decimal": "0." + "1" * 2_000}, "0.11111"),
        ("b", 1, "1"),
        ("b", "true", "'true'"),
        ("d", "yesterday", "'yesterday'"),
        ("d", True, "True"),
        ("d", {"decimal": "2.5"}, "2.5"),
        ("d", {"date": 2.5}, "2.5"),
        ("t", "2024-13-01", "'2024-13-01'"),
        ("t", {"date": "2024-05-31 12:00:00"}, "'2024-05-31 12:00:00'"),
        ("s", 5, "5"),
        ("s", {"decimal": "5.0"}, "5.0"),
        ("s", {"base64": "AA=="}, "'AA=='"),
        ("s", {"date": "2024-05-31"}, "'2024-05-31'"),
        ("s", "\ud800", "'\\ud800'"),
        ("v", False, "False"),
        ("y", 5, "5"),
        ("y", {"base64": "?"}, "'?'"),
        ("s", {}, "{}"),
        ("i8", "x" * 100, "'xxxxx"),
    ],
)
def test_a_literal_of_the_wrong_type_is_named(name, value, shown):
    for predicate in (
        Comparison(op="=", column=name, value=value),
        InList(op="not_in", column=name, values=[value]),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            bind(predicate, SCHEMA)
        start = f"column {name!r} has the type {TYPES[name]} and cannot be compared with {shown}"
        assert caught.value.message.startswith(start)
        assert "; expected " in caught.value.message
        assert len(caught.value.message) < 250


def test_errors_name_the_column():
    with pytest.raises(InvalidArgumentError, match=r"no column 'I8', perhaps 'i8'; the columns are k, i8, i64"):
        bind(parse_filter("I8 = 1", LIMITS), SCHEMA)
    with pytest.raises(InvalidArgumentError, match="'i8' has the type int8; LIKE needs a string column"):
        bind(parse_filter("i8 LIKE 'x'", LIMITS), SCHEMA)
    with pytest.raises(InvalidArgumentError, match="'i8' is compared with NULL, which is never true; write IS NULL"):
        bind(Comparison(op="=", column="i8", value=None), SCHEMA)
    with pytest.raises(InvalidArgumentError, match="'i8' has the type int8 and cannot be compared with True"):
        bind(parse_filter("i8 AND b", LIMITS), SCHEMA)


def test_not_reaches_the_leaves():
    assert _root("NOT (i8 < 5 AND (s = 'x' OR b))") == _root("i8 >= 5 OR (s <> 'x' AND b <> TRUE)")
    assert _root("NOT (i8 BETWEEN 1 AND 5)") == _root("i8 < 1 OR i8 > 5")
    assert _root("NOT (i8 IN (1, 2) OR i8 IS NULL)") == _root("i8 NOT IN (1, 2) AND i8 IS NOT NULL")
    assert _root("NOT g < 5") == Compare(_id("g"), PhysicalType.FLOAT64, ">=", 5.0, matches_nan=True)


def test_cheap_parts_come_first_and_junctions_are_flat():
    bound = bind(parse_filter("s LIKE '%x%' AND (v = 'a' AND (k > 5 AND (i8 = 1 AND b IS NULL)))", LIMITS), SCHEMA)
    assert isinstance(bound.root, And)
    assert bound.column_ids == [_id(name) for name in ("b", "i8", "k", "v", "s")]


def test_constants():
    assert bind(None, SCHEMA) == BoundFilter(TRUE)
    assert bind(None, SCHEMA).is_trivially_true
    assert bind(None, SCHEMA).column_ids == []
    assert bind(parse_filter("k = 1 AND i8 = 2.5", LIMITS), SCHEMA).is_trivially_false
    assert not bind(parse_filter("k = 1", LIMITS), SCHEMA).is_trivially_false
    assert select(bind(None, SCHEMA), {}, 3).tolist() == [True] * 3
    assert select(bind(Junction(op="or", args=[]), SCHEMA), {}, 3).tolist() == [False] * 3


def test_deep_trees_are_refused_and_long_chains_are_not():
    leaf = deep = chain = Comparison(op="=", column="k", value=1)
    for _ in range(DEPTH_MAX + 1):
        deep = Not(op="not", arg=Junction(op="and", args=[deep, leaf]))
    with pytest.raises(InvalidArgumentError, match="nested more than 100 levels deep"):
        bind(deep, SCHEMA)
    for _ in range(5_000):
        chain = Junction(op="and", args=[chain, leaf])
    assert isinstance(bind(chain, SCHEMA).root, And)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a%b\\%_", ["ab%x", "a--b%\n"], ["ab%", "abbx", "ab%xy"]),
        ("%a\\\\b%", ["a\\b", "xa\\by"], ["a\\\\b", "ab"]),
        ("%.*", [".*", "x.*"], ["x", ".*x"]),
        ("_", ["\xe9", "\U00010000", "\n", "\0"], ["", "ab"]),
        ("__%", ["ab", "\u65e5\u672c\u8a9e"], ["\u65e5"]),
        ("\\a%", ["a", "ab"], ["\\a", "b"]),
        ("%\0_", ["\0x", "a\0x"], ["\0", "0x"]),
        ("\xe9%", ["\xe9", "\xe9a"], ["e", "\xea", "\u00e8"]),
        ("(a|b)[c]{2}^$+?%_", ["(a|b)[c]{2}^$+?x"], ["acc", "bcc"]),
    ],
)
def test_like(pattern, matching, others):
    texts = [*matching, *others]
    vectors = {_id("s"): model.vectors_of({"s": model.pa.array([*texts, None])}, _strings())[1]}
    for predicate, expected in (
        (Like(op="like", column="s", pattern=pattern), matching),
        (Not(op="not", arg=Like(op="like", column="s", pattern=pattern)), others),
    ):
        found = select(bind(predicate, SCHEMA), vectors, len(texts) + 1)
        assert [text for text, answer in zip([*texts, None], found, strict=True) if answer] == expected


def _strings():
    return table_of([("s", "string", False)])


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a\\", "ends in a backslash"),
        ("_%" * 501, "more than 1,000 wildcards"),
        ("_" + "x" * 10_000_000, "is too long"),
    ],
)
def test_wrong_patterns_are_refused(pattern, why):
    with pytest.raises(InvalidArgumentError, match=why) as caught:
        bind(Like(op="like", column="s", pattern=pattern), SCHEMA)
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("name", ["i8", "k", "i64"])
def test_a_list_of_integers_is_bound_like_its_literals_one_by_one(name, negated):
    ends = [2**bits + off for bits in (7, 31, 63) for off in (-1, 0)]
    integers = [5, -5, 0, 5, *ends[:4], *(-end for end in ends[:4]), ends[4], -ends[5], 0]
    for values in (integers, [5, 5], [200], [2**62, -(2**62)], [*integers, ends[5]]):
        op = "not_in" if negated else "in"
        one_by_one = [*values, {"decimal": "0.5"}]  # names no cell, and is not an integer
        expected = bind(InList(op=op, column=name, values=one_by_one), SCHEMA)
        assert bind(InList(op=op, column=name, values=values), SCHEMA) == expected
