"""SQL text: what is read, what is refused and how the refusal reads, and that no text takes long."""

import time
from contextlib import suppress
from typing import Any

import pytest

from nyala.engine.expression import tree as nodes
from nyala.engine.expression import words
from nyala.engine.expression.building import DEPTH_MAX
from nyala.engine.expression.parse import TEXT_MAX, parse_filter
from nyala.engine.filter.where import parse_where
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.limits.limits import Limits

LIMITS = Limits()


def _as_json(node: nodes.Expr) -> dict[str, Any]:
    """A tree as a filter is written in JSON, as far as it has that form."""
    match node:
        case nodes.ColumnName(name=name):
            return _compare(name, "=", True)
        case nodes.Constant(value=bool() as value):
            return {"op": "and" if value else "or", "args": []}
        case nodes.Compared(op=op, left=nodes.ColumnName(name=name), right=nodes.Constant(value=value)):
            return _compare(name, op, value)
        case nodes.Compared(op=op, left=nodes.Constant(value=value), right=nodes.ColumnName(name=name)):
            return _compare(name, nodes.FLIPPED[op], value)
        case nodes.Between(
            arg=nodes.ColumnName(name=name), low=nodes.Constant(value=low), high=nodes.Constant(value=high)
        ):
            return {"op": "between", "column": name, "lower": low, "upper": high}
        case nodes.Among(arg=nodes.ColumnName(name=name), values=values, others=()):
            return {"op": "in", "column": name, "values": list(values)}
        case nodes.Not(arg=nodes.Among() as listed):
            return _as_json(listed) | {"op": "not_in"}
        case nodes.Matches(arg=nodes.ColumnName(name=name), pattern=pattern, ignores_case=False):
            return {"op": "like", "column": name, "pattern": pattern}
        case nodes.IsNull(arg=nodes.ColumnName(name=name)):
            return {"op": "is_null", "column": name}
        case nodes.Not(arg=nodes.IsNull() as test):
            return _as_json(test) | {"op": "is_not_null"}
        case nodes.Not(arg=arg):
            return _not(_as_json(arg))
        case nodes.Junction(op=op, args=args):
            return {"op": op, "args": [_as_json(part) for part in args]}
    raise AssertionError(node)


def _compare(column, op, value):
    return {"op": op, "column": column, "value": value}


A, B, C = (_compare(name, "=", True) for name in "abc")


def _and(*args):
    return {"op": "and", "args": list(args)}


def _or(*args):
    return {"op": "or", "args": list(args)}


def _not(arg):
    return {"op": "not", "arg": arg}


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1", _compare("a", "=", 1)),
        ("a == 1", _compare("a", "=", 1)),
        ("a != 1", _compare("a", "<>", 1)),
        ("a <> -1", _compare("a", "<>", -1)),
        ("a<-1", _compare("a", "<", -1)),
        ("a >= - - +1", _compare("a", ">=", 1)),
        ("a = 12345678901234567890123456789012345678", _compare("a", "=", 12345678901234567890123456789012345678)),
        ("a = 1.50", _compare("a", "=", {"decimal": "1.50"})),
        ("a = -.5", _compare("a", "=", {"decimal": "-.5"})),
        ("a = 1e3", _compare("a", "=", {"decimal": "1e3"})),
        ("a = 'it''s'", _compare("a", "=", "it's")),
        ("a = 'back\\slash'", _compare("a", "=", "back\\slash")),
        ("a = TRUE", _compare("a", "=", True)),
        ("a = x'00fF'", _compare("a", "=", {"base64": "AP8="})),
        ("a = date '2024-05-31'", _compare("a", "=", {"date": "2024-05-31"})),
        ("a = CAST('2024-05-31' AS timestamp)", _compare("a", "=", {"timestamp": "2024-05-31"})),
        ("5 < a", _compare("a", ">", 5)),
        ("5 >= a", _compare("a", "<=", 5)),
        ("'x' = a", _compare("a", "=", "x")),
        ('"a b""c" = 1', _compare('a b"c', "=", 1)),
        ("date = 1 AND timestamp = 2", _and(_compare("date", "=", 1), _compare("timestamp", "=", 2))),
        ('"select" = 1', _compare("select", "=", 1)),
        ("gr\xf6\xdfe = 1", _compare("gr\xf6\xdfe", "=", 1)),
        ("a", A),
        ("NOT a", _not(A)),
        ("NOT NOT a", A),
        ("TRUE", _and()),
        ("false", _or()),
        ("a BETWEEN 1 AND 2 AND b", _and({"op": "between", "column": "a", "lower": 1, "upper": 2}, B)),
        ("a NOT BETWEEN 1 AND 2", _not({"op": "between", "column": "a", "lower": 1, "upper": 2})),
        ("a IN (1, 'x', -2.5)", {"op": "in", "column": "a", "values": [1, "x", {"decimal": "-2.5"}]}),
        ("a not in ()", {"op": "not_in", "column": "a", "values": []}),
        ("a LIKE 'x%'", {"op": "like", "column": "a", "pattern": "x%"}),
        ("a NOT LIKE 'x%'", _not({"op": "like", "column": "a", "pattern": "x%"})),
        ("a LIKE '50!%!!\\' ESCAPE '!'", {"op": "like", "column": "a", "pattern": "50\\%\\!\\\\"}),
        ("a is null", {"op": "is_null", "column": "a"}),
        ("a IS NOT NULL", {"op": "is_not_null", "column": "a"}),
        ("a AND b OR c", _or(_and(A, B), C)),
        ("a OR b AND c", _or(A, _and(B, C))),
        ("a AND (b OR c)", _and(A, _or(B, C))),
        ("NOT a AND b", _and(_not(A), B)),
        ("NOT (a AND b)", _not(_and(A, B))),
        ("((a AND b)) AND (c)", _and(A, B, C)),
        ("a AND (b AND (c AND a))", _and(A, B, C, A)),
        ("a -- why\n AND /* how /* deep */ */ b", _and(A, B)),
    ],
)
def test_text_becomes_a_tree(text, tree):
    assert _as_json(parse_filter(text, LIMITS)) == tree


@pytest.mark.parametrize(
    ("text", "is_syntax"),
    [
        *(("a + = 2", True), ("a = 1 = 2", True), ("a BETWEEN 1", True), ("a IS 5", True), ("a b", True)),
        *(("a ~ 'x'", True), ("a REGEXP 'x'", True), ("sum(a) = 1", False), ("NULL = a", False)),
        *(("5", False), ("a LIKE 5", False), ("t.5 = 1", True), ("a > INTERVAL '1e30' DAY", False)),
    ],
)
def test_only_wrong_syntax_is_answered_by_the_grammar(text: str, is_syntax: bool) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_filter(text, LIMITS)
    assert ("known are =, <>" in caught.value.message) is is_syntax


@pytest.mark.parametrize(
    ("text", "part", "why"),
    [
        ("a = NULL", "character 5, 'NULL'", "write a IS NULL"),
        ("a <> NULL", "'NULL'", "write a IS NOT NULL"),
        ("a IN (1, NULL)", "character 10, 'NULL'", "write IS NULL"),
        ("NULL = a", "'NULL'", "write a IS NULL"),
        ("a BETWEEN NULL AND 1", "'NULL'", "write IS NULL"),
        ("sum(a) = 1", "character 1, 'sum'", "the function sum(...) is not supported; supported are ABS, CAST"),
        ("a = round(b, 1, 2)", "'round'", "ROUND takes 1 or 2 arguments, not 3"),
        ("coalesce() = 1", "'coalesce'", "COALESCE takes at least 1 arguments, not 0"),
        ("a + = 2", "character 5, '='", "expected a literal or a column"),
        ("5", "'5'", "a literal alone is not a condition"),
        ("a AND 'x'", "'x'", "a literal alone is not a condition"),
        ("NOT NULL", "'NULL'", "a literal alone is not a condition"),
        ("a IN (SELECT 1)", "'SELECT'", "subqueries are not supported"),
        ("a = (SELECT max(b) FROM t)", "'SELECT'", "subqueries are not supported"),
        ("EXISTS (SELECT 1)", "'EXISTS'", "subqueries are not supported"),
        ("a REGEXP 'x'", "'REGEXP'", "REGEXP is not supported"),
        ("CASE WHEN a THEN b", "the end", "expected WHEN, THEN, ELSE or END"),
        ("CASE WHEN a END", "'END'", "a CASE is CASE WHEN ... THEN ... ELSE ... END"),
        ("a THEN b", "'THEN'", "no CASE is open"),
        ("t.'a' = 1", "'a'", "a dot is followed by the field of a struct"),
        ("t[a] = 1", "'a'", "brackets hold the number of an item"),
        ("a = CAST('1' AS money)", "'money'", "unknown column type 'money'"),
        ("a = CAST('1')", "')'", "CAST takes a type"),
        ("EXTRACT(century FROM a) = 1", "'century'", "EXTRACT takes YEAR"),
        ("a > INTERVAL '1' FORTNIGHT", "'1'", "an interval is a number of MICROSECOND"),
        ("a > INTERVAL '1e30' DAY", "'1e30'", "too long"),
        ("a = ?", "'?'", "parameters are not supported"),
        ("a IS 5", "'5'", "expected NULL, TRUE or FALSE"),
        ("a LIKE 5", "'5'", "LIKE takes a pattern in quotes"),
        ("a LIKE b", "'b'", "LIKE takes a pattern in quotes"),
        ("a LIKE 'x' ESCAPE '!!'", "'!!'", "ESCAPE takes one character"),
        ("a LIKE 'x!' ESCAPE '!'", "'x!'", "has nothing to escape"),
        ("a = 1 = 2", "'='", "expected AND, OR or the end"),
        ("a BETWEEN 1 = 2 AND 3", "'='", "expected AND between the ends of BETWEEN"),
        ("a BETWEEN 1 OR 3", "'OR'", "expected AND between the ends of BETWEEN"),
        ("a = 1; DROP TABLE t", "';'", "expected AND, OR or the end"),
        ("a = 1a", "'a'", "expected AND, OR or the end"),
        ("a = 0x1F", "'0x1F'", "a number must be decimal"),
        ("a = X'0'", "'0'", "even number of hexadecimal digits"),
        ("a =", "the end", "expected a literal"),
        ("(a = 1", "the end", "a parenthesis is not closed"),
        ("abs(a", "the end", "a parenthesis is not closed"),
        ("a = 1)", "')'", "no parenthesis is open"),
        ("a IN (1 2)", "'2'", "expected AND, OR or the end"),
        ("a IN 5", "'5'", "a list of values in parentheses"),
        ("(a, b) IN ((1, 2))", "','", "expected a comparison or an operator after a value"),
        ("a = 'open", "", "a quote or a comment is not closed"),
        ("a = 1 /* open", "", "a quote or a comment is not closed"),
        ("a = '\ud800'", "", "not valid Unicode at character 6"),
        ("  ", "", "the filter is empty"),
    ],
)
def test_what_is_refused_is_named(text, part, why):
    with pytest.raises(InvalidArgumentError) as caught:
        parse_filter(text, LIMITS)
    assert part in caught.value.message
    assert why in caught.value.message


def test_a_refusal_says_what_is_supported():
    with pytest.raises(InvalidArgumentError, match=r"IS \[NOT\] NULL, AND, OR, NOT, \+, -, \*, /, %"):
        parse_filter("a ~ 'x'", LIMITS)


@pytest.mark.parametrize("value", ["7", "-70", "+7", "9" * 18, "9" * 30, "-2.5", "'it''s, (a) -- \"list\"'", "'x'"])
def test_long_lists_are_read_like_short_ones(value):
    short = parse_filter(f"a IN ({value}, 1)", LIMITS)
    text = (
        f"b = '(1, 2' AND a IN (\n{', '.join([value] * 500)} ,1) AND \"c(1,\" NOT IN ({','.join(['1'] * 500)}) -- it's"
    )
    parts = _as_json(parse_filter(text, LIMITS))["args"]
    assert [part["column"] for part in parts] == ["b", "a", "c(1,"]
    assert parts[0]["value"] == "(1, 2"
    assert isinstance(short, nodes.Among)
    assert parts[1]["values"] == [short.values[0]] * 500 + [1]
    assert parts[2] == {"op": "not_in", "column": "c(1,", "values": [1] * 500}


def test_positions_count_over_long_lists():
    text = f"a IN ({','.join(['1'] * 500)}) AND median(b) = 1"
    with pytest.raises(InvalidArgumentError, match=f"character {text.index('median') + 1}, 'median'"):
        parse_filter(text, LIMITS)
    with pytest.raises(InvalidArgumentError, match=r"the function f\(...\) is not supported"):
        parse_filter(f"f({','.join(['1'] * 500)}) = 1", LIMITS)
    tree = parse_filter(f"a < greatest({','.join(map(str, range(500)))})", LIMITS)
    assert isinstance(tree, nodes.Compared) and isinstance(tree.right, nodes.Call)
    assert tree.right.args == tuple(map(nodes.Constant, range(500)))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 50_000 + "a = 1" + ")" * 50_000,
        "NOT " * 25_001 + "a",
        "a = " + "- " * 50_000 + "1",
        " AND ".join(["a = 1"] * 9_999),
        "(a OR " * 9_998 + "b" + ")" * 9_998,
        "(" * 9_998 + "b" + " AND a)" * 9_998,
        "--\n" * 30_000 + "a",
        "a" + " + 1" * 9_998 + " > 0",
        "(" * 9_998 + "a" + " + 1)" * 9_998 + " > 0",
        "CASE " + "WHEN a THEN b " * 4_999 + "END",
        "a IN (" + "b, " * 9_997 + "c)",
        "a IN (" + ",".join(map(str, range(100_000))) + ")",
        "a IN (" + ",".join(f"'{number:036d}'" for number in range(100_000)) + ")",
    ],
    ids=lambda text: f"{text[:8]}...",
)
def test_large_filters_are_read_in_little_time(text):
    start = time.process_time()
    parse_filter(text, LIMITS)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(" * 100_000, "expected a literal"),
        ("a" + ")" * 100_000, "no parenthesis is open"),
        ("f(" * 50_000, "the function f(...) is not supported"),
        ("abs(" * 30_000, "expected a literal"),
        ("nullif(" * 10_000 + "a" + ", 1)" * 10_000, "nested more than 100 levels"),
        ("CASE WHEN " * 10_000, "expected a literal"),
        ("CASE a WHEN " * 10_000, "expected a literal"),
        ("CAST(" * 20_000 + "a", "a parenthesis is not closed"),
        ("a" + " IS NULL" * 10_000, "nested more than 100 levels"),
        ("a" + " + 1" * 20_000 + " > 0", "more than 10,000 parts"),
        ("[" * 100_000, "expected a literal"),
        ("'" * 100_001, "a quote or a comment is not closed"),
        ("/*" * 50_000, "a quote or a comment is not closed"),
        ("a = " + "1" * 100_000, "of at most 1000 digits"),
        ("a IN (" + "1," * 50_000, "expected a literal"),
        ("(1," * 33_000, "expected a comparison or an operator"),
        ("(a = 1 OR NOT (b = 1 AND " * 4_000, f"nested more than {DEPTH_MAX} levels"),
        (" AND ".join(["a"] * 10_001), "more than 10,000 parts"),
        ("a IN (" + ",".join(["1"] * 100_001) + ")", "lists more than 100,000 values"),
        ("a IN (" + ",".join(["1" * 1_001] * 64) + ")", "of at most 1000 digits"),
        ("a" * (TEXT_MAX + 1), "at most 4,194,304 are allowed"),
    ],
    ids=lambda text: f"{text[:8]}...",
)
def test_hostile_filters_are_refused_in_little_time(text, why):
    if text.startswith("(a = 1 OR NOT"):
        text += "c" + "))" * 4_000
    start = time.process_time()
    with pytest.raises(InvalidArgumentError) as caught:
        parse_filter(text, LIMITS)
    assert time.process_time() - start < 5
    assert why in caught.value.message
    assert len(caught.value.message) < 500


def test_text_is_searched_in_short_steps(monkeypatch):
    """A regular expression keeps the interpreter from all other threads: one over 4 MB of text did for 50 ms."""
    spans = []

    class Recorder:
        def search(self, text, first, end):
            spans.append(end - first)
            return step.search(text, first, end)

    step = words._STEP
    monkeypatch.setattr(words, "_STEP", Recorder())
    for text in ("a = 1 or " * 400_000 + "a = 1", "a IN (" + ",".join(["1"] * 90_000) + ") AND b = 2"):
        with suppress(InvalidArgumentError):
            parse_filter(text, LIMITS)
    assert spans and max(spans) <= words.MAX_PLAIN_TEXT + 1


def test_where_is_text_or_a_tree_or_none():
    assert parse_where(None, LIMITS) is None
    assert parse_where("a = 1", LIMITS) == parse_where({"op": "=", "column": "a", "value": 1}, LIMITS)
    assert parse_where({"op": "and", "args": []}, LIMITS) == nodes.Junction("and", [])


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("", "the filter is empty"),
        (["a"], "SQL text or a filter tree, not list"),
        ({"op": "xor"}, "the filter tree is invalid"),
        ({"op": "in", "column": "a", "values": [0] * 100_001}, "lists 100,001 values"),
    ],
)
def test_wrong_wheres_are_refused(where, why):
    with pytest.raises(InvalidArgumentError, match=why):
        parse_where(where, LIMITS)
