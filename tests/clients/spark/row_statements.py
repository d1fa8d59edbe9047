"""Random statements that change rows, as SQL and as what they mean for rows in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

Row = dict[str, Any]
Test = Callable[..., Any]
COLUMNS = ("k", "s", "a", "b", "c")
DEFAULT = 2.5
"""What ``c`` gets in new rows."""


class Refused(Exception):
    """A statement that changes nothing; the argument is the reason that it gives."""


@dataclass(frozen=True)
class Term:
    """An expression, and its value for some rows."""

    sql: str
    value: Test

    def holds(self, *rows: Row | None) -> bool:
        return self.value(*rows) is True


@dataclass
class Clause:
    """``WHEN ... THEN``: ``sets`` are the assignments of an update or the columns of an insert; None deletes."""

    when: Term | None
    sets: dict[str, Term] | None

    def holds(self, *rows: Row) -> bool:
        return self.when is None or self.when.holds(*rows)


@dataclass
class Rows:
    """The rows of a table, by key."""

    key: Sequence[str]
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)

    def of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    def change(self, deletes: Sequence[Row], updates: Sequence[tuple[Row, Row]], inserts: Sequence[Row]) -> None:
        """Apply changes as one: first all deletes, rows that get another key among them."""
        moved = [(old, new) for old, new in updates if self.of(old) != self.of(new)]
        gone = {self.of(row) for row in [*deletes, *(old for old, _ in moved)]}
        left = {key: row for key, row in self.rows.items() if key not in gone}
        left |= {self.of(new): new for old, new in updates if self.of(old) == self.of(new)}
        for row in [*(new for _, new in moved), *inserts]:
            if self.of(row) in left:
                raise Refused("ALREADY_PRESENT")
            left[self.of(row)] = row
        self.rows = left

    def update(self, sets: dict[str, Term], where: Term) -> None:
        self.change([], [(row, _assigned(row, sets, row)) for row in self.rows.values() if where.holds(row)], [])

    def delete(self, where: Term) -> None:
        self.change([row for row in self.rows.values() if where.holds(row)], [], [])

    def replace(self, where: Term, inserts: Sequence[Row]) -> None:
        self.change([row for row in self.rows.values() if where.holds(row)], [], inserts)

    def merge(
        self, source: Sequence[Row], on: Term, matched: list[Clause], missing: list[Clause], left: list[Clause]
    ) -> None:
        """``missing`` clauses are for rows of the source without a match, ``left`` ones for rows of the table."""
        deletes, updates, inserts, found = [], [], [], set()
        is_plain_delete = len(matched) == 1 and matched[0].when is None and matched[0].sets is None
        for row in self.rows.values():
            matches = [place for place, each in enumerate(source) if on.holds(row, each)]
            if len(matches) > 1 and matched and not is_plain_delete:
                raise Refused("MERGE_CARDINALITY_VIOLATION")
            found |= {*matches}
            pairs = [(matched, (row, source[place])) for place in matches] or [(left, (row,))]
            for clauses, rows in pairs:
                clause = next((each for each in clauses if each.holds(*rows)), None)
                if clause is not None and clause.sets is None:
                    deletes.append(row)
                elif clause is not None and clause.sets is not None:
                    updates.append((row, _assigned(row, clause.sets, *rows)))
        for place, each in enumerate(source):
            clause = next((clause for clause in missing if clause.holds(each)), None)
            if place not in found and clause is not None:
                inserts.append(_assigned(dict.fromkeys(COLUMNS) | {"c": DEFAULT}, clause.sets or {}, each))
        self.change(deletes, updates, inserts)


def _assigned(row: Row, sets: dict[str, Term], *rows: Row) -> Row:
    return row | {name: term.value(*rows) for name, term in sets.items()}


def _above(cell: Any, number: int) -> bool | None:
    return None if cell is None else cell > number


def condition(rng: Random, table: str = "") -> Term:
    """Return a condition on the rows of a table ``t``, with subqueries of it if it is named: a MERGE takes none."""
    number, digit = rng.randint(-5, 40), rng.randint(0, 4)
    terms = [
        of_store(rng),
        of_store(rng),
        Term(f"t.k % 5 = {digit}", lambda t: t["k"] % 5 == digit),
        Term(f"t.s = 'p' AND abs(t.k) > {digit}", lambda t: t["s"] == "p" and abs(t["k"]) > digit),
        Term(f"t.k IN (SELECT k FROM {table} WHERE k > {number})", lambda t: t["k"] > number),
    ]
    return rng.choice(terms if table else terms[:-1])


def of_store(rng: Random) -> Term:
    """Return a condition that the store evaluates."""
    number, digit = rng.randint(-5, 40), rng.randint(0, 4)
    terms = [
        Term(f"t.k < {number}", lambda t: t["k"] < number),
        Term(f"t.a > {number}", lambda t: _above(t["a"], number)),
        Term("t.a IS NULL", lambda t: t["a"] is None),
        Term(f"t.b LIKE '{digit}%'", lambda t: None if t["b"] is None else t["b"].startswith(str(digit))),
        Term(f"NOT (t.a > {number})", lambda t: None if t["a"] is None else not t["a"] > number),
        Term(f"t.k IN ({number}, {number + 3})", lambda t: t["k"] in (number, number + 3)),
    ]
    return rng.choice(terms)


def literal(cell: Any) -> str:
    if cell is None:
        return "NULL"
    return f"'{cell}'" if isinstance(cell, str) else f"{cell!r}D" if isinstance(cell, float) else str(cell)


def random_row(rng: Random, spread: int = 40) -> Row:
    return {
        "k": rng.randrange(spread),
        "s": rng.choice("pqr"),
        "a": rng.choice([None, rng.randint(-5, 45)]),
        "b": rng.choice([None, "", f"{rng.randint(0, 99)}", "it\u00e9"]),
        "c": rng.choice([None, DEFAULT, -0.5]),
    }


def _assignments(rng: Random, key: Sequence[str]) -> dict[str, Term]:
    number = rng.randint(1, 60)
    sets = {
        "a": rng.choice([Term(f"t.a + {number}", lambda t: None if t["a"] is None else t["a"] + number),
                         Term("NULL", lambda t: None), Term(str(number), lambda t: number)]),
        "b": Term(f"concat('{number}', t.b)", lambda t: None if t["b"] is None else f"{number}{t['b']}"),
        "c": Term("t.k * 0.5D", lambda t: t["k"] * 0.5),
    }  # fmt: skip
    chosen = {name: sets[name] for name in rng.sample(sorted(sets), rng.randint(1, 3))}
    if rng.random() < 0.25:
        chosen["k"] = Term(f"t.k + {number}", lambda t: t["k"] + number)
    if rng.random() < 0.1 and "s" in key:
        chosen["s"] = Term("'z'", lambda t: "z")
    return chosen


def _merge(rng: Random, table: str, key: Sequence[str]) -> tuple[str, Callable[[Rows], None]]:
    source = [random_row(rng) for _ in range(rng.randint(1, 12))]
    if rng.random() < 0.85:
        source = list({row["k"]: row for row in source}.values())
    number = rng.randint(0, 40)
    both = [f"t.{name} = u.{name}" for name in key]
    on = Term(" AND ".join(both), lambda t, u: all(t[name] == u[name] for name in key))
    if rng.random() < 0.2:
        on = Term(f"t.k = u.k AND t.a > {number}", lambda t, u: t["k"] == u["k"] and _above(t["a"], number))
    of_pair = Term(f"u.a > {number}", lambda t, u: _above(u["a"], number))
    of_source = Term(f"u.a > {number}", lambda u: _above(u["a"], number))
    of_target = condition(rng)
    updates = {
        "a": Term("u.a", lambda t, u: u["a"]),
        "b": Term("concat(t.b, u.b)", lambda t, u: None if None in (t["b"], u["b"]) else t["b"] + u["b"]),
    }
    some = {name: updates[name] for name in rng.sample(["a", "b"], rng.randint(1, 2))}
    inserts = {name: Term(f"u.{name}", lambda u, name=name: u[name]) for name in COLUMNS}
    few = {name: term for name, term in inserts.items() if name in (*key, "b")}
    matched = rng.choice([[], [Clause(None, None)], [Clause(None, some)], [Clause(of_pair, None), Clause(None, some)],
                          [Clause(of_pair, some), Clause(None, None)], [Clause(of_pair, some)]])  # fmt: skip
    missing = rng.choice([[], [Clause(None, inserts)], [Clause(of_source, few)],
                          [Clause(of_source, inserts), Clause(None, few)]])  # fmt: skip
    left = rng.choice([[], [], [Clause(of_target, None)], [Clause(of_target, {"b": Term("'left'", lambda t: "left")})]])
    if not matched + missing + left:
        matched = [Clause(None, some)]
    names = ", ".join(COLUMNS)
    typed = f"SELECT bigint(k) k, s, int(a) a, string(b) b, double(c) c FROM VALUES {_values(source)} AS v({names})"
    clauses = [
        *(_said("WHEN MATCHED", each, is_insert=False) for each in matched),
        *(_said("WHEN NOT MATCHED", each, is_insert=True) for each in missing),
        *(_said("WHEN NOT MATCHED BY SOURCE", each, is_insert=False) for each in left),
    ]
    sql = f"MERGE INTO {table} t USING ({typed}) u ON {on.sql} {' '.join(clauses)}"
    return sql, lambda rows: rows.merge(source, on, matched, missing, left)


def _said(when: str, clause: Clause, is_insert: bool) -> str:
    test = "" if clause.when is None else f" AND {clause.when.sql}"
    if clause.sets is None:
        return f"{when}{test} THEN DELETE"
    if is_insert:
        values = ", ".join(term.sql for term in clause.sets.values())
        return f"{when}{test} THEN INSERT ({', '.join(clause.sets)}) VALUES ({values})"
    return f"{when}{test} THEN UPDATE SET {_sets(clause.sets)}"


def _sets(sets: dict[str, Term]) -> str:
    return ", ".join(f"{name} = {term.sql}" for name, term in sets.items())


def statement(rng: Random, table: str, key: Sequence[str]) -> tuple[str, Callable[[Rows], None]]:
    """Return a random statement on a table with this key, and what it does."""
    where = condition(rng, table)
    kind = rng.random()
    if kind < 0.2:
        return f"DELETE FROM {table} t WHERE {where.sql}", lambda rows: rows.delete(where)
    if kind < 0.5:
        sets = _assignments(rng, key)
        return f"UPDATE {table} t SET {_sets(sets)} WHERE {where.sql}", lambda rows: rows.update(sets, where)
    if kind < 0.53:
        everything = Term("true", lambda t: True)
        sql = rng.choice([f"TRUNCATE TABLE {table}", f"DELETE FROM {table}"])
        return sql, lambda rows: rows.delete(everything)
    if kind < 0.65:
        return _replace(rng, table)
    return _merge(rng, table, key)


def _replace(rng: Random, table: str) -> tuple[str, Callable[[Rows], None]]:
    where, rows = of_store(rng), [random_row(rng) for _ in range(rng.randint(1, 4))]
    sql = f"INSERT INTO {table} REPLACE WHERE {where.sql.replace('t.', '')} VALUES {_values(rows)}"
    return sql, lambda model: model.replace(where, rows)


def _values(rows: Sequence[Row]) -> str:
    return ", ".join(f"({', '.join(literal(row[name]) for name in COLUMNS)})" for row in rows)
