"""Numbered writes belong to the user who made them: nobody takes the next number of another."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow.flight as fl
import pytest

from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand
from tests.doubles.grant_statements import ALL, SECRET, Caller, base64_of, batch
from tests.flight_server.guarded import Guarded

NUMBERED = {"table": "t", "op": "upsert", "writer": "nightly"}


@pytest.fixture
def guarded(guarded: Guarded) -> Guarded:
    guarded.set_grants({"insert": frozenset(ALL), "update": frozenset(ALL), "read": frozenset(ALL)})
    return guarded


def by_put(caller: Caller, seq: int) -> Any:
    told = fl.FlightDescriptor.for_command(json.dumps(NUMBERED).encode())
    writer, reader = caller.client.do_put(told, batch("k a b").schema, caller.options)
    with writer:
        writer.write_with_metadata(batch("k a b"), json.dumps({"seq": seq}).encode())
        writer.done_writing()
        return json.loads(reader.read().to_pybytes())


def by_row(caller: Caller, seq: int) -> Any:
    return caller.session({"write": NUMBERED, "columns": ["k", "a", "b"]}, {"seq": seq, "row": [1, 5, SECRET]})


def by_batch(caller: Caller, seq: int) -> Any:
    rows = batch("k a b")
    first = {"write": NUMBERED, "arrow_schema": base64_of("k a b")}
    return caller.session(first, {"seq": seq}, rows.serialize().to_pybytes())


def by_stream(caller: Caller, seq: int) -> Any:
    told = fl.FlightDescriptor.for_command(json.dumps(NUMBERED | {"commit": "stream"}).encode())
    writer, reader = caller.client.do_put(told, batch("k a b").schema, caller.options)
    with writer:
        writer.write_batch(batch("k a b"))
        writer.write_metadata(json.dumps({"commit": True, "rows": 1, "seq": seq}).encode())
        writer.done_writing()
        return json.loads(reader.read().to_pybytes())


def by_statement(caller: Caller, seq: int) -> Any:
    what = {"table": "t", "kind": "update", "set": {"a": "a + 1"}, "where": "k = 1"}
    return caller.action("execute", **what, writer="nightly", seq=seq)


WAYS: dict[str, Callable[[Caller, int], Any]] = {
    "put": by_put,
    "row": by_row,
    "batch": by_batch,
    "stream": by_stream,
    "statement": by_statement,
}


@pytest.mark.parametrize("way", WAYS)
def test_nobody_takes_the_number_of_another(guarded: Guarded, way: str) -> None:
    write = WAYS[way]
    theirs = write(guarded.admin, 7)
    mine = write(guarded.user, 7)
    assert mine["applied"] == 1 and mine["timestamp"] > theirs["timestamp"], "it was not answered as theirs"
    for caller, first in ((guarded.admin, theirs), (guarded.user, mine)):
        again = write(caller, 7)
        assert (again["timestamp"], again["applied"]) == (first["timestamp"], 1), "sent again, it is answered"


def test_names_of_users_in_names_of_writers_are_no_way_around(guarded: Guarded) -> None:
    theirs = by_put(guarded.admin, 7)
    for name in ("root/nightly", "\x01root\x01nightly", "\x01alice\x01nightly"):
        sent = guarded.user.session({"write": NUMBERED | {"writer": name}, "columns": ["k"]}, {"seq": 7, "row": [1]})
        assert sent["timestamp"] > theirs["timestamp"], name


def test_numbers_from_before_users_had_names_of_their_own(guarded: Guarded) -> None:
    command = WriteCommand(table="t", op=Operation.UPSERT, writer="nightly")
    before = guarded.store.begin_write(command, batch("k a b"), 7).result()
    assert by_put(guarded.user, 7)["timestamp"] == before.timestamp, "sent again after the update, it is answered"
    mine = by_put(guarded.user, 8)
    assert mine["timestamp"] > before.timestamp
    theirs = by_put(guarded.admin, 8)
    assert theirs["timestamp"] > mine["timestamp"]
    (page,) = guarded.admin.client.do_action(fl.Action("commits", b'{"table":"t"}'), guarded.admin.options)
    assert json.loads(page.body.to_pybytes())["writer"][-3:] == ["nightly", "alice/nightly", "root/nightly"]


def test_a_row_takes_the_short_way(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """It did not: the store of a caller was not known as one that writes rows, and each became a batch."""
    written: list[object] = []
    write_row = type(guarded.store).write_row

    def counted(store: Any, *given: Any) -> Any:
        written.append(found := write_row(store, *given))
        return found

    monkeypatch.setattr(type(guarded.store), "write_row", counted)
    assert by_row(guarded.user, 1)["applied"] == 1
    assert len(written) == 1 and written[0] is not None


def test_servers_pass_on_the_names_of_their_callers(guarded: Guarded) -> None:
    """A server shows others the token of an administrator."""
    mine = by_row(guarded.user, 7)
    passed_on = NUMBERED | {"writer": "\x01alice\x01nightly"}
    again = guarded.admin.session({"write": passed_on, "columns": ["k", "a", "b"]}, {"seq": 7, "row": [1, 5, SECRET]})
    assert again["timestamp"] == mine["timestamp"]
