"""Each field of each action with values that nobody means well by: an error with a code word, and nothing breaks."""

from __future__ import annotations

import json
import logging
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.schemas.protocol.server_verbs import ACTIONS
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import Stage, WriteCommand
from tests.doubles.grant_statements import batch
from tests.flight_server.guarded import Guarded
from tests.flight_server.served import code_of

BIG = 10**4299
"""The longest integer that JSON may have here."""
HOSTILE: list[Any] = [BIG, 1 << 64, -1, 1e308, True, "\0", "x" * 70_000, "../../etc/passwd", [None], {"t": []}]
BODIES = [b"", b"null", b"[]", b"\xff", b"NaN", b"[" * 100_000, b'{"table":' * 5_000, b"1" * 100_000]
GIVEN = {"table": "t", "transaction": "tx", "move": "m", "kind": "restore"}
KNOWN = {
    *("INVALID_ARGUMENT", "NOT_FOUND", "CONFLICT", "ALREADY_PRESENT", "PERMISSION_DENIED"),
    *("SNAPSHOT_TOO_OLD", "STORAGE_FULL", "WRONG_SERVER"),
}


def is_refused(code: str) -> bool:
    assert code in KNOWN, code
    return True


def asked(guarded: Guarded, action: str, body: bytes) -> None:
    try:
        list(guarded.admin.client.do_action(fl.Action(action, body), guarded.admin.options))
    except fl.FlightError as error:
        assert is_refused(code_of(error)), (action, body[:200])


def fields_with_hostile_values(fields: Any, given: dict[str, Any]) -> list[bytes]:
    return [json.dumps({**given, name: value}).encode() for name in fields for value in HOSTILE]


@pytest.fixture
def watched(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO)
    yield guarded
    assert [each for each in caplog.records if each.exc_info or each.levelno >= logging.ERROR] == []
    assert guarded.admin.action("metrics")["families"] and guarded.admin.action("health")["status"] == "ok"


def test_actions(watched: Guarded) -> None:
    for action, verb in ACTIONS.items():
        fields = verb.request.model_fields if verb.request else {}
        given = {name: value for name, value in GIVEN.items() if name in fields}
        for body in (*BODIES, *fields_with_hostile_values(fields, given)):
            asked(watched, action, body)
        if "t" not in watched.admin.action("tables")["tables"]:
            watched.make_table()


@pytest.mark.parametrize("option", ["max_rows", "max_bytes", "history_max_age_seconds"])
def test_numbers_of_tables(watched: Guarded, option: str) -> None:
    column = {"name": "k", "type": "int64", "nullable": False}
    for value in (BIG, 1 << 63):
        step = {"op": "set_option", "option": option, "value": value}
        table = {"name": "new", "columns": [column], "primary_key": ["k"], "options": {option: value}}
        for action, body in (("alter_table", {"table": "t", "steps": [step]}), ("create_table", table)):
            with pytest.raises(
                fl.FlightError, match=f"table option '{option}' may be at most 9,223,372,036,854,775,807"
            ):
                watched.admin.action(action, **body)
    watched.admin.action("alter_table", table="t", steps=[{**step, "value": (1 << 63) - 1}])


def test_scans(watched: Guarded) -> None:
    def refused(ticket: bytes) -> None:
        descriptor = fl.FlightDescriptor.for_command(ticket)
        for ask in (
            lambda: watched.admin.client.do_get(fl.Ticket(ticket), watched.admin.options).read_all(),
            lambda: watched.admin.client.get_flight_info(descriptor, watched.admin.options),
        ):
            try:
                ask()
            except (fl.FlightError, pa.ArrowException) as error:
                assert is_refused(code_of(error)), ticket[:200]

    parts = [{"changes": {"since": each}} for each in HOSTILE]
    parts += [{"changes": {"since": 0, "until": each}} for each in HOSTILE]
    parts += [{"aggregate": {"n": ["a", "sum"]}, "partial": True, "group_by": each} for each in HOSTILE]
    parts += [{"partition": {"lower": [each]}} for each in (*HOSTILE, {"base64": []}, [[1]])]
    for ticket in fields_with_hostile_values(ScanSpec.model_fields, {"table": "t"}):
        refused(ticket)
    for part in parts:
        refused(json.dumps({"table": "t", **part}).encode())


def test_writes(watched: Guarded) -> None:
    rows = batch("k a")
    stages = fields_with_hostile_values(Stage.model_fields, {"transaction": "tx", "part": "p"})
    commands = fields_with_hostile_values(WriteCommand.model_fields, {"table": "t", "op": "upsert"})
    for command in [*commands, *(b'{"table":"t","stage":%b}' % each for each in stages)]:
        told = fl.FlightDescriptor.for_command(command)
        writer, reader = watched.admin.client.do_put(told, rows.schema, watched.admin.options)
        try:
            writer.write_batch(rows)
            writer.write_metadata(b'{"commit":true,"rows":1}')
            writer.done_writing()
            reader.read()
            writer.close()
        except fl.FlightError as error:
            assert is_refused(code_of(error)), command[:200]
