"""The public API, embedded and over Flight: its names, and that all it returns and raises can be named."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import nyala
from nyala.clients.api.database import Database

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def test_levels_of_the_partition_module_are_those_of_the_short_names(db: Database) -> None:
    assert (nyala.partition.hash, nyala.partition.range) == (nyala.hash, nyala.range)
    levels = [nyala.partition.hash("k", buckets=2), nyala.partition.range("k", bounds=[(0, 10), (10, None)])]
    assert len(db.create_table("parts", SCHEMA, ["k"], levels).tablets()) == 4


def test_tables_are_listed_by_both_names(db: Database) -> None:
    for name in ("b", "a"):
        db.create_table(name, SCHEMA, ["k"])
    assert db.list_tables() == db.tables() == ["a", "b"]


def test_a_server_is_connected_to_by_either_name(embedded: Database, url: str) -> None:
    embedded.create_table("t", SCHEMA, ["k"])
    for connected in (nyala.connect(url), nyala.connect(uri=url), nyala.connect(url=url)):
        with connected as database:
            assert database.list_tables() == ["t"]
    with pytest.raises(nyala.InvalidArgumentError, match="the uri of a server or a placement"):
        nyala.connect()


def test_modules_are_found_without_an_import_of_their_own() -> None:
    assert nyala.jobs.load.__name__ == "load" and nyala.spark.read_table.__name__ == "read_table"
    assert {"jobs", "partition", "spark", "connect", "open"} <= set(dir(nyala))


# --- what public calls return and raise ---

OFFERED = {name: getattr(nyala, name) for name in dir(nyala) if not name.startswith("_")}
"""What is reached as ``nyala.name``."""
OFFERED = {name: value for name, value in OFFERED.items() if getattr(value, "__module__", "").startswith("nyala")}
HOMES = {"nyala": OFFERED} | {
    f"nyala.{module.__name__.rpartition('.')[2]}": {
        name: getattr(module, name) for name in getattr(module, "__all__", dir(module)) if not name.startswith("_")
    }
    for module in (nyala.jobs, nyala.partition, nyala.spark)
}
FOR_CHECKERS_ONLY = {"pa": pa, "pc": pc, "pd": pd, "pl": pl, "Path": Path}
RAISED = re.compile(r"^\s+(\w+(?:Error|Errors|Exception)): ", re.MULTILINE)
OF_SPARK = {"AnalysisException", "PySparkException"}


def functions(offered: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the public functions, and the methods and properties of the public classes, by their names."""
    for name, value in offered.items():
        if not inspect.isclass(value):
            yield from [(name, value)] if callable(value) else []
            continue
        for member, how in list(vars(value).items()):  # reading hints may build a model
            function = getattr(how, "__func__", None) or getattr(how, "fget", None) or how
            function = how.func if isinstance(how, cached_property) else function
            if not member.startswith("_") and inspect.isfunction(function):
                yield f"{name}.{member}", function


def classes(hint: Any) -> Iterator[type]:
    """Yield the classes of ours that a type hint names."""
    if isinstance(hint, type) and hint.__module__.startswith("nyala"):
        yield hint
    for part in get_args(hint):
        yield from classes(part)


def not_offered(offered: dict[str, Any], known: set[Any]) -> list[str]:
    """Return the calls that return or raise what users cannot name."""
    found, names = [], {getattr(value, "__name__", "") for value in known}
    for name, function in functions(offered):
        hints = get_type_hints(function, localns=FOR_CHECKERS_ONLY | OFFERED | offered)
        found += [f"{name} returns {each.__name__}" for each in classes(hints.get("return")) if each not in known]
        raised = set(RAISED.findall(function.__doc__ or "")) - names - OF_SPARK
        found += [f"{name} raises {each}" for each in raised]
    return found


@pytest.mark.parametrize("home", HOMES)
def test_what_is_returned_or_raised_can_be_named(home: str) -> None:
    known = {value for value in [*OFFERED.values(), *HOMES[home].values()] if inspect.isclass(value)}
    assert not_offered(HOMES[home], known) == []


def test_what_cannot_be_named_is_seen() -> None:
    class Hidden:
        __module__ = "nyala.hidden"

    def call() -> list[Hidden] | None:
        """Return it.

        Raises:
            HiddenError: always.
        """

    planted = {"call": call, "Hidden": Hidden}
    assert not_offered(planted, set()) == ["call returns Hidden", "call raises HiddenError"]


def test_checkers_see_the_names_that_are_loaded_when_used() -> None:
    face = ast.parse(Path(nyala.__file__ or "").read_text())
    (checked,) = (node for node in face.body if isinstance(node, ast.If))
    seen = {alias.asname for node in ast.walk(checked) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen - {None} - set(nyala._MODULES) == set(nyala._HOMES)


def test_verbs_of_a_transaction_and_of_a_table_name_their_arguments(db: Database) -> None:
    table = db.create_table("t", SCHEMA, ["k"])
    with db.transaction() as transaction:
        for verb in nyala.Operation:
            call = getattr(transaction, verb)
            assert list(inspect.signature(call).parameters) == ["table", "data"] and verb in call.__doc__
            more = ["rules"] if verb is nyala.Operation.MERGE else []
            assert list(inspect.signature(getattr(table, verb)).parameters) == ["data", *more, "how"]
        assert transaction.insert(table, {"k": [1], "v": ["a"]}).rows == 1
        transaction.update("t", {"k": [1], "v": ["b"]})
    assert isinstance(transaction.result, nyala.TransactionResult) and table.get(1) == {"k": 1, "v": "b"}


def test_every_short_verb_takes_what_write_takes(db: Database) -> None:
    table = db.create_table("t", SCHEMA, ["k"])
    moment = db.now()
    for seq, verb in enumerate(nyala.Operation):
        data = {"k": [1]} if verb.base == nyala.Operation.DELETE else {"k": [1], "v": [verb]}
        call = getattr(table, verb)
        first = call(data, durability="os", writer="w", seq=seq, on_error="return")
        assert first.durability == nyala.Durability.OS and first.rows == 1
        again = call(data, durability="os", writer="w", seq=seq, on_error="return")
        assert again == first
    table.upsert({"k": [2], "v": ["newer"]})
    for verb in ("upsert", "update"):
        late = getattr(table, verb)({"k": [2], "v": ["late"]}, if_timestamp=moment, on_error="return")
        assert [error.code for error in late.errors] == ["CONFLICT"]
    assert table.delete({"k": [2]}, if_timestamp=moment, on_error="return").errors[0].code == "CONFLICT"
    assert table.insert_ignore({"k": [2], "v": ["late"]}, if_timestamp=moment).ignored == 1


def test_the_rows_of_many_keys_are_one_table(db: Database) -> None:
    table = db.create_table("t", SCHEMA, ["k"])
    table.insert({"k": list(range(2_000)), "v": [str(key) for key in range(2_000)]})
    keys = [1_999, 0, 5_000, 7]
    forms = (keys, [(key,) for key in keys], [(1_999,), [0], {"k": 5_000}, 7], [{"k": key} for key in keys])
    data = (pa.table({"k": keys}), pd.DataFrame({"k": keys}), pa.array(keys), pa.chunked_array([keys[:2], keys[2:]]))
    for asked in (*forms, *data):
        found = table.get_many(asked)
        assert isinstance(found, pa.Table) and found.to_pydict() == {"k": [1_999, 0, 7], "v": ["1999", "0", "7"]}
    assert table.get_many([]).equals(table.schema.empty_table())
    with pytest.raises(nyala.InvalidArgumentError, match=r"must be \('k',\), as a dict or a tuple, not \(1, 2\)"):
        table.get_many([(1,), (1, 2)])
    with pytest.raises(nyala.InvalidArgumentError, match="this Int64Array has no columns; data must be a pandas"):
        table.upsert(pa.array(keys))
