"""Random INSERT ... ON CONFLICT DO UPDATE, over columns of many types, some of which must be refused."""

from __future__ import annotations

from random import Random

TABLE = """
CREATE TABLE t (id bigint PRIMARY KEY, small smallint, n int, big bigint DEFAULT 5, cents numeric(6,2),
    wide numeric(20,5), price double precision, f real, s text, cut varchar(3) WITH (too_long = 'truncate'),
    whole varchar(4), day date, at timestamp, ok boolean, raw bytea, m int NOT NULL DEFAULT 7, tags text[],
    twice bigint DEFAULT m * 2, doc json)
"""
_CELLS = {
    "small": ["0", "1", "-3", "32767", "-32768", "NULL"],
    "n": ["0", "2", "-5", "2147483647", "NULL", "1 + 2", "2.5", "'12'"],
    "big": ["0", "7", "9223372036854775807", "-9223372036854775808", "NULL", "DEFAULT"],
    "cents": ["0", "1.25", "-0.5", "9999.99", "NULL", "1.005"],
    "wide": ["1", "0.00001", "123456789012345.5", "NULL"],
    "price": ["0", "1.5", "-2", "'NaN'", "'Infinity'", "1e308", "NULL"],
    "f": ["0", "0.1", "-2.5", "'NaN'", "3e38", "NULL"],
    "s": ["''", "'a'", "'Ab'", "'12'", "NULL"],
    "cut": ["'abc'", "'a'", "'abcdef'", "NULL"],
    "whole": ["'abcd'", "'a'", "''", "NULL"],
    "day": ["'2026-03-01'", "DATE '1969-12-31'", "NULL"],
    "at": ["'2026-03-01 10:00:00.5'", "TIMESTAMP '1969-12-31 23:59:59'", "NULL"],
    "ok": ["TRUE", "FALSE", "NULL"],
    "raw": ["X'00ff'", "NULL"],
    "m": ["1", "9", "DEFAULT", "2147483647"],
    "tags": ["ARRAY['a']", "NULL"],
    "twice": ["1", "NULL"],
    "doc": ["""'{"a": 1}'""", "'[]'", "NULL"],
}
_GROUPS = [
    ["small", "n", "big", "m", "twice"],
    ["cents", "wide"],
    ["price"],
    ["f"],
    ["s", "cut", "whole"],
    ["day"],
    ["at"],
    ["ok"],
    ["raw"],
    ["tags"],
    ["doc"],
]
_PLAIN = ["raw", "tags"]
"""DataFusion has no coalesce of bytea."""
_COUNTERS = [
    "greatest({a}, {b})",
    "least({b}, {a})",
    "coalesce({a}, {b})",
    "{a} + {b}",
    "coalesce({a} + {b}, {b}, {a})",
]
_NUMBERS = _GROUPS[0] + _GROUPS[1] + _GROUPS[2]
_CONDITIONS = [
    "{a} > {b}",
    "{a} = {b}",
    "{a} <= {b}",
    "{a} IS NULL",
    "{a} IS NOT NULL AND {b} > 3",
    "t.ok",
    "excluded.ok",
]
_WRONG = [
    "nothing = 1",
    "n = nothing",
    "n = excluded.nothing",
    "id = 3",
    "n = 1, n = 2",
    "m = NULL",
    "n = 's'",
    "small = 40000",
]


def statement(random: Random) -> str:
    """Return a statement whose rows and SET fit the table, mostly."""
    given = random.sample(sorted(_CELLS), random.randrange(5))
    keys = random.sample(range(12), random.choice([1, 1, 1, 2, 3]))
    if random.random() < 0.03:
        keys.append(keys[0])
    rows = ", ".join(f"({', '.join([str(key), *(random.choice(_CELLS[name]) for name in given)])})" for key in keys)
    changed = random.sample(sorted(_CELLS), random.choice([1, 1, 2, 3]))
    sets = ", ".join(f"{name} = {_value(random, name)}" for name in changed)
    if random.random() < 0.04:
        sets = random.choice(_WRONG)
    where = f" WHERE {_condition(random, 1)}" if random.random() < 0.05 else ""
    return f"INSERT INTO t ({', '.join(['id', *given])}) VALUES {rows} ON CONFLICT (id) DO UPDATE SET {sets}{where}"


def _value(random: Random, name: str) -> str:
    """Return a new value for a column: that of the new row, a literal, or an expression, mostly of its type."""
    kind = random.randrange(10)
    if kind < 2:
        return f"excluded.{name}"
    if kind == 2:
        return random.choice([*_CELLS[name], "DEFAULT"])
    if kind == 3:
        return _expression(random, random.choice(_GROUPS), 1)
    if kind < 7 and name not in _PLAIN:
        return random.choice(_COUNTERS).format(a=f"t.{name}", b=f"excluded.{name}")
    return _expression(random, next(group for group in _GROUPS if name in group), 2)


def _expression(random: Random, group: list[str], depth: int) -> str:
    a, b = (_operand(random, group, depth) for _ in range(2))
    forms = ["{a}", "CASE WHEN {c} THEN {a} ELSE {b} END", "CASE WHEN {c} THEN {a} END"]
    if group[0] not in _PLAIN:
        forms += ["coalesce({a}, {b})", "greatest({a}, {b})", "least({a}, {b})", "nullif({a}, {b})"]
    if group[0] in _NUMBERS:
        forms += ["{a} + {b}"] * 4 + ["{a} - {b}", "{a} * {b}", "{a} / {b}", "-({a})", "abs({a})"]
    if group[0] == "small":
        forms += ["{a} % {b}", "CAST({a} AS bigint) + {b}", "({a} + {b})::smallint"]
    if "s" in group:
        forms += ["{a} || {b}", "{a} || '!'", "upper({a})", "{a} || 7"]
    return random.choice(forms).format(a=a, b=b, c=_condition(random, depth - 1))


def _operand(random: Random, group: list[str], depth: int) -> str:
    if depth and random.random() < 0.3:
        return f"({_expression(random, group, depth - 1)})"
    if random.random() < 0.15:
        return random.choice([cell for cell in _CELLS[group[0]] if cell != "DEFAULT"])
    return random.choice(["t.", "t.", "excluded.", "excluded.", ""]) + random.choice(group)


def _condition(random: Random, depth: int) -> str:
    if depth < 0:
        return random.choice(["t.ok", "excluded.ok", "t.n > 3"])
    group = random.choice(_GROUPS[:7])
    a, b = (_operand(random, group, depth) for _ in range(2))
    return random.choice(_CONDITIONS).format(a=a, b=b)
