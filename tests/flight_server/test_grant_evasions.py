"""Ways around grants, through the front door: each was open once, or could be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from guarded import Guarded

from tests.doubles.grant_statements import ALL, OpenSession


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    made.make_table()
    made.make_table("mine")
    made.set_grants({"read": frozenset("a")})
    made.set_grants({"read": frozenset(ALL)}, "mine")
    yield made
    made.close()


# Tickets with the lease of another


def lease_of(guarded: Guarded, **spec: Any) -> dict[str, Any]:
    """Plan a scan; return what reads the rows that were kept for it."""
    told = json.loads(guarded.user.info(**spec).endpoints[0].ticket.ticket)
    return {"lease": told["lease"], "as_of": told["as_of"]}


def by_session(guarded: Guarded, **spec: Any) -> None:
    OpenSession(guarded.user).ask({"scan": {"table": "t", **spec}})


@pytest.fixture(params=["ticket", "session"])
def read(request: pytest.FixtureRequest, guarded: Guarded) -> Callable[..., Any]:
    return guarded.user.scan if request.param == "ticket" else lambda **spec: by_session(guarded, **spec)


def test_a_lease_reads_no_other_table(guarded: Guarded) -> None:
    guarded.make_table("other")
    with pytest.raises(fl.FlightUnauthorizedError):
        guarded.user.scan()
    lease = lease_of(guarded, columns=["a"])
    guarded.admin.action("alter_table", table="mine", steps=[{"op": "drop_column", "name": "b"}])
    assert guarded.user.scan(table="mine", **lease).column_names == ["k", "a"]
    guarded.set_grants({"read": frozenset("a")}, "other")
    lease = lease_of(guarded, table="other", columns=["a"])
    guarded.set_grants({}, "other")
    assert guarded.user.scan(table="mine", **lease).column_names == ["k", "a"]


def test_a_lease_reads_no_column_by_an_older_name(guarded: Guarded, read: Callable[..., Any]) -> None:
    steps = {"b": {"op": "rename_column", "name": "b", "to": "c"}, "c": {"op": "drop_column", "name": "c"}}
    for name, step in steps.items():
        lease = lease_of(guarded, columns=["a"])
        guarded.admin.action("alter_table", table="t", steps=[step])
        for spec in (
            {"columns": [name]},
            {"columns": ["a"], "where": f"{name} = 'x'"},
            {"aggregate": {"n": [name, "max"]}},
            {"aggregate": {"n": ["*", "count"]}, "group_by": [name]},
            {"columns": ["a"], "order_by": [{"column": name}]},
        ):
            with pytest.raises((fl.FlightError, pa.ArrowException, RuntimeError), match=f"no column '{name}'"):
                read(**spec, **lease)


def test_a_lease_reads_what_it_did_if_nothing_has_another_name(guarded: Guarded) -> None:
    lease = lease_of(guarded, columns=["a"])
    guarded.admin.action("alter_table", table="t", steps=[{"op": "add_column", "name": "more", "type": "int64"}])
    assert guarded.user.scan(columns=["a"], **lease).num_rows == 10
