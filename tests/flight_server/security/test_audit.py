"""The audit log: what is in it, what is in no log, and what happens when it cannot be written."""

from __future__ import annotations

import json
import logging
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nyala.flight_server.handlers.actions import FOR_PROCESS_ADMINS
from nyala.flight_server.security.audit import AuditLog
from nyala.flight_server.security.rules import AUDITED
from nyala.flight_server.security.security import Security
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.protocol.server_verbs import SERVER_VERBS
from nyala.schemas.protocol.verbs import VERBS
from nyala.schemas.store.grants import Privilege
from tests.doubles.grant_statements import ALL, REQUESTS, SECRET, outcome
from tests.flight_server.guarded import Guarded


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def told(path: Path) -> list[tuple[str, str, str, str | None]]:
    return [(each["user"], each["action"], each["outcome"], each.get("table")) for each in entries(path)]


def test_what_is_done_to_the_process(guarded: Guarded) -> None:
    asked = {"name": "a", "force": True}
    for caller, action, body in (
        (guarded.user, "server_release", {"name": "a"}),
        (guarded.admin, "server_take", asked),
        (guarded.admin, "server_take", {**asked, "force": 7, "secret": SECRET}),
    ):
        with suppress(Exception):
            caller.action(action, **body)
    assert told(guarded.audit)[-3:] == [
        ("alice", "server_release", "denied", None),
        ("root", "server_take", "INVALID_ARGUMENT", None),
        ("root", "server_take", "INVALID_ARGUMENT", None),
    ]
    found = [{key: each.get(key) for key in ("name", "force", "secret")} for each in entries(guarded.audit)[-3:]]
    assert found == [{"name": "a", "force": None, "secret": None}, {**asked, "secret": None}, dict.fromkeys(found[0])]


def test_every_action_that_changes_something_is_audited_or_known_not_to_be() -> None:
    of_rows = {"execute", "commit_transaction", "abort_transaction"}
    between_servers = {"move_read", "move_fetch"}
    keeping_on = {"renew_pin", "release_scan", "compaction_renew"}
    telling = {"health", "placement"}
    methods = {verb.method for verb in VERBS.values()}
    reads = {verb.method for verb in VERBS.values() if verb.is_read}
    assert methods - reads - AUDITED == of_rows | between_servers | keeping_on | telling
    assert methods >= AUDITED and not reads & AUDITED
    assert SERVER_VERBS.keys() - FOR_PROCESS_ADMINS == {"where"}


def test_changes_denials_and_administration(guarded: Guarded) -> None:
    guarded.admin.action("grant", role="team", table="t", privileges=["read", "insert"], columns=["a", "k"])
    guarded.admin.action("alter_table", table="t", steps=[{"op": "set_comment", "name": "a", "comment": SECRET}])
    assert outcome(REQUESTS["scan of a column"], guarded.user) == "ok"
    assert outcome(REQUESTS["filter"], guarded.user) == "denied"
    assert outcome(REQUESTS["session get"], guarded.user) == "denied"
    with suppress(Exception):
        guarded.user.scan(table="hidden")
    with suppress(Exception):
        guarded.admin.action("drop_table", table="missing")
    assert told(guarded.audit) == [
        ("root", "create_table", "ok", "t"),
        ("root", "maintain", "ok", "t"),
        ("root", "grant", "ok", "t"),
        ("root", "alter_table", "ok", "t"),
        ("alice", "scan", "denied", "t"),
        ("alice", "get", "denied", "t"),
        ("alice", "scan", "denied", "hidden"),
        ("root", "drop_table", "NOT_FOUND", "missing"),
    ]
    grant = entries(guarded.audit)[2]
    assert (grant["grantee_role"], grant["columns"]) == ("team", ["a", "k"])
    assert grant["privileges"] == ["read", "insert"] and grant["time"].endswith("+00:00")
    assert stat.S_IMODE(guarded.audit.stat().st_mode) == 0o600


def test_checkpoints_are_for_administrators_and_audited(guarded: Guarded, tmp_path: Path) -> None:
    guarded.set_grants(dict.fromkeys(map(str, Privilege), frozenset(ALL)))
    with pytest.raises(Exception, match="PERMISSION_DENIED"):
        guarded.user.action("checkpoint", directory=str(tmp_path / "copy"))
    with pytest.raises(Exception, match="PERMISSION_DENIED"):
        guarded.user.action("checkpoint", directory="/elsewhere")
    assert not (tmp_path / "copy").exists()
    guarded.admin.action("checkpoint", directory=str(tmp_path / "copy"))
    with suppress(Exception):
        guarded.admin.action("checkpoint", directory="copy")
    found = [(each["user"], each["outcome"], each["directory"]) for each in entries(guarded.audit)[-4:]]
    copy = str(tmp_path / "copy")
    assert found == [
        ("alice", "denied", copy),
        ("alice", "denied", "/elsewhere"),
        ("root", "ok", copy),
        ("root", "INVALID_ARGUMENT", "copy"),
    ]


def test_no_log_has_cells_or_secrets(guarded: Guarded, caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    caplog.set_level(logging.DEBUG)
    for has in ({}, {"read": frozenset("a")}, {"insert": frozenset(["k", "b"]), "delete": frozenset()}):
        guarded.set_grants(has)
        for asked in REQUESTS.values():
            if outcome(asked, guarded.user) == "ok" and asked.after:
                asked.after(guarded.admin)
            with suppress(Exception):
                guarded.user.scan(columns=["a"], where=f"b = '{SECRET}'")
            with suppress(Exception):
                guarded.user.action("execute", table="t", kind="update", set={"b": f"'{SECRET}'"})
    written = guarded.audit.read_text() + caplog.text + "".join(capfd.readouterr())
    assert '"denied"' in written
    for secret in (SECRET, guarded.user_token, guarded.admin_token, guarded.user_token.split("_", 2)[2]):
        assert secret not in written


def test_rotation(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path, 4096, 3)
    for number in range(200):
        log.note("alice", "alter_table", "ok", table=f"t{number}")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(each.stat().st_size <= 4096 for each in tmp_path.iterdir())
    kept = [each["table"] for name in (".2", ".1", "") for each in entries(tmp_path / f"audit.log{name}")]
    assert kept == [f"t{number}" for number in range(200 - len(kept), 200)]
    log.close()
    log = AuditLog(path, 4096, 1)
    for _ in range(100):
        log.note("a\nb", "alter_table", "ok")
    assert path.stat().st_size <= 4096 and {each["user"] for each in entries(path)} == {"a\nb"}
    log.close()


def test_nobody_pushes_the_entries_of_others_out(guarded: Guarded) -> None:
    before = len(entries(guarded.audit))
    for number in range(200):
        with suppress(Exception):
            guarded.user.scan(table=f"{number}" * 100_000)
        with suppress(Exception):
            guarded.user.scan(table="hidden")
    size = guarded.audit.stat().st_size
    found = entries(guarded.audit)[before:]
    assert len(found) == 65 and size < 65 * 1000 and found[1]["table"] == "hidden"
    assert {len(each.get("table", "")) for each in found} == {259, len("hidden"), 0}


def test_what_fails_again_is_counted(tmp_path: Path) -> None:
    path, seconds = tmp_path / "audit.log", 0.0
    log = AuditLog(path, 1 << 20, 3, seconds=lambda: seconds)
    for table in ("t", "t", "u", "t"):
        log.note("alice", "scan", "denied", table=table)
    log.note("bob", "scan", "denied", table="t")
    log.note("alice", "release_pin", "NOT_FOUND", id="7-1")
    seconds = 61
    log.note("alice", "scan", "denied", table="t")
    log.note("alice", "scan", "denied", table="t")
    log.close()
    first, second = ["t", "u", "t", None], ["t", "t", "t"]
    assert [each.get("table") for each in entries(path)] == first + second
    assert [each.get("repeated") for each in entries(path)] == [None] * 4 + [2, None, 1]


def test_a_rotation_that_fails_takes_no_old_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path, 200, 4)

    def fill(count: int) -> None:
        for number in range(count):
            log.note("alice", "alter_table", "ok", table=f"t{number}")

    fill(10)
    kept = {each.name: each.read_text() for each in tmp_path.iterdir()}
    assert len(kept) == 4
    opened, replace = os.open, Path.replace

    def none_free(*_: Any, **__: Any) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", none_free)
    fill(20)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == kept
    assert "Too many open files" in log.failure
    monkeypatch.setattr(os, "open", opened)

    def not_the_last(self: Path, target: Path) -> Path:
        if target == path:
            raise OSError(13, "Permission denied")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", not_the_last)
    fill(20)
    monkeypatch.setattr(Path, "replace", replace)
    assert {kept[name] for name in ("audit.log", "audit.log.1", "audit.log.2")} <= {
        each.read_text() for each in tmp_path.iterdir()
    }
    log.note("alice", "alter_table", "ok", table="last")
    (last,) = entries(path)
    assert last["table"] == "last" and last["lost_before"] == 40 and not log.failure
    log.close()


def test_a_full_disk_stops_nothing_and_is_seen(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, is_full = os.write, True

    def full(file: int, data: bytes) -> int:
        return write(file, data[:10]) if is_full else write(file, data)

    before = len(entries(guarded.audit))
    monkeypatch.setattr(os, "write", full)
    for _ in range(3):
        assert outcome(REQUESTS["scan of all"], guarded.user) == "hidden"
    assert outcome(REQUESTS["alter"], guarded.admin) == "ok"
    assert caplog.text.count("cannot be written") == 1
    health = guarded.admin.action("health")
    assert (health["status"], health["reason"]) == (
        "degraded",
        "the audit log cannot be written (No space left on device)",
    )
    assert guarded.user.action("health")["status"] == "ok"
    is_full = False
    assert outcome(REQUESTS["alter"], guarded.admin) == "ok"
    assert guarded.admin.action("health")["status"] == "ok"
    assert "4 entries were lost" in caplog.text
    *_, last = entries(guarded.audit)
    assert last["lost_before"] == 4 and len(entries(guarded.audit)) == before + 1


def test_what_an_audit_log_needs(tmp_path: Path) -> None:
    for wrong in (ServeOptions(audit_log=tmp_path / "audit.log"), ServeOptions(admins=("root",))):
        with pytest.raises(InvalidArgumentError, match="need authentication"):
            Security(wrong)
    with pytest.raises(InvalidArgumentError, match="cannot be written: No such file"):
        AuditLog(tmp_path / "missing" / "audit.log", 4096, 1)
