"""The buttons of the console: what they do, for whom, and that nobody else can press them."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nyala.engine.maintenance import upkeep
from nyala.flight_server.http.console.maintenance import Buttons
from nyala.flight_server.http.console.visit import Visit
from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.protocol.service import MaintenanceKind
from nyala.schemas.store.grants import GrantChange, Privilege
from tests.doubles.waiting import until
from tests.flight_server.http_client import Port
from tests.flight_server.test_console import Stay, tree, words

PATH = "/console/maintenance"


def press(port: Port, form: dict[str, str], token: str | None = None, origin: str | None = "") -> int:
    """Send a form as a browser does; return the status. ``origin`` is the page's; empty: the console's."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    if origin is not None:
        headers["origin"] = origin or port.http.url
    request = urllib.request.Request(port.http.url + PATH, urllib.parse.urlencode(form).encode(), headers)
    try:
        with urllib.request.build_opener(Stay).open(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        if error.code == 303:
            assert error.headers["location"] == PATH
        return error.code


def forms(text: str) -> list[dict[str, str]]:
    """The forms of a page, with what their hidden fields and the first of choices hold."""
    found = []
    for form in tree(text).iter("form"):
        assert (form.get("method"), form.get("action")) == ("post", PATH)
        fields = {each.get("name") or "": each.get("value") or "" for each in form.iter("input")}
        for choice in form.iter("select"):
            fields[choice.get("name") or ""] = choice[0].get("value") or ""
        found.append(fields)
    return found


def done(port: Port) -> list[tuple[str, str, str]]:
    until(lambda: port.served.store.maintenance().done)
    return [(each.op or "", each.table, each.error) for each in port.served.store.maintenance().done]


def test_work_runs_and_is_shown(port: Callable[..., Port]) -> None:
    one = port()
    one.served.put("homes", one.served.rows(100))
    buttons = forms(one.ask("/console/table?name=homes")[1])
    assert {each["op"] for each in buttons} == set(MaintenanceKind) and len(buttons) == len(MaintenanceKind)
    assert press(one, buttons[0]) == 303
    assert done(one) == [("flush", "homes", "")]
    assert one.served.store.table_stats("homes").tablets[0].rowsets == 1
    assert "flush table homes homes" in words(one.ask(PATH)[1])


def test_a_kind_of_work_is_paused_and_resumed(port: Callable[..., Port]) -> None:
    one = port()
    (pause,) = (each for each in forms(one.ask(PATH)[1]) if each["op"] == "compact")
    before = time.time()
    assert pause["seconds"] == "600" and press(one, {**pause, "seconds": "3600"}) == 303
    (end,) = one.served.store.maintenance().paused.values()
    assert before + 3599 < end < time.time() + 3601
    (resume,) = (each for each in forms(one.ask(PATH)[1]) if each["op"] == "compact")
    assert resume["seconds"] == "0" and press(one, resume) == 303
    assert one.served.store.maintenance().paused == {}


def test_due_work_has_a_button(port: Callable[..., Port]) -> None:
    one = port()
    store: Any = one.served.store
    store._gate.is_pressed = lambda: True
    one.served.put("homes", one.served.rows(100))
    store._maintenance._look()
    text = one.ask(PATH)[1]
    (run,) = (each for each in forms(text) if "table" in each)
    assert (run["op"], run["table"]) == ("flush", "homes") and "Maintenance is off" in words(text)
    assert press(one, run) == 303 and done(one) == [("flush", "homes", "")]


def test_work_that_fails_is_shown_with_its_cause(port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch) -> None:
    one = port()
    store: Any = one.served.store
    assert "Failing" not in words(one.ask(PATH)[1])
    store._gate.is_pressed = lambda: True
    one.served.put("homes", one.served.rows(100))
    with monkeypatch.context() as patched:
        patched.setattr(upkeep, "flush_memrowset", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.run_maintenance_once()
    text = words(one.ask(PATH)[1])
    assert "Failing" in text and "INTERNAL: a bug, which the log shows" in text
    assert "maintenance fails and is tried again (1 in failing)" in words(one.ask("/console")[1])
    (run,) = (each for each in forms(one.ask("/console/table?name=homes")[1]) if each["op"] == "flush")
    assert press(one, run) == 303
    until(lambda: ("flush", "homes", "") in done(one))
    assert "Failing" not in words(one.ask(PATH)[1])


def test_nobody_else_can_press_a_button(port: Callable[..., Port]) -> None:
    one = port()
    form = forms(one.ask("/console/table?name=homes")[1])[0]
    host = one.http.url.removeprefix("http://")
    for origin in (None, "null", "http://evil.example", f"http://evil.example/{host}", f"http://{host}.evil.example"):
        assert press(one, form, origin=origin) == 403
    for token in ("", "0" * 64, form["token"][:-1], form["token"] + "0", "\u00e9"):
        assert press(one, {**form, "token": token}) == 403
    assert press(one, {"token": form["token"], "op": "flush", "table": "x" * 9000}) == 403
    assert press(one, {}) == 403
    assert press(one, form) == 303
    assert len(done(one)) == 1, "only what the button itself began"


def test_wrong_forms_change_nothing(port: Callable[..., Port]) -> None:
    one = port()
    token = forms(one.ask(PATH)[1])[0]["token"]
    for status, form in {
        404: {"op": "flush", "table": "castles"},
        400: {"op": "defragment", "table": "homes"},
    }.items():
        assert press(one, {**form, "token": token}) == status
    for seconds in ("-1", "1e3", "999999999999", "", "\u0663"):
        assert press(one, {"op": "flush", "seconds": seconds, "token": token}) in (400, 404)
    state = one.served.store.maintenance()
    assert state.paused == {} and state.done == []


def test_who_is_gone_before_the_form_is_there_leaves_no_trace(
    port: Callable[..., Port], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    token = create_token(tmp_path / "tokens.json", "alice", ("admin",))[0]
    one = port(ServeOptions(tokens=tmp_path / "tokens.json"))
    address = ("127.0.0.1", int(one.http.url.rpartition(":")[2]))
    logging.getLogger("uvicorn").addHandler(caplog.handler)
    for shown in (token, "nyala_wrong"):
        with socket.create_connection(address, timeout=10) as connection:
            head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {shown}\r\ncontent-length: 100\r\n\r\nop="
            connection.sendall(head.encode())
            if shown != token:
                assert connection.recv(99).startswith(b"HTTP/1.1 401 "), "nobody waits for a stranger's form"
            else:
                time.sleep(0.3)
    assert one.ask(PATH, token)[0] == 200
    logging.getLogger("uvicorn").removeHandler(caplog.handler)
    assert "Traceback" not in caplog.text and "ClientDisconnect" not in caplog.text


def test_work_of_one_user_leaves_room_for_that_of_others(
    port: Callable[..., Port], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tmp_path / "tokens.json"
    made = {name: create_token(tokens, name, ("admin",))[0] for name in ("alice", "bob", "carol")}
    one, goes_on = port(ServeOptions(tokens=tokens)), threading.Event()
    pressed = {name: forms(one.ask("/console/table?name=homes", token)[1])[0] for name, token in made.items()}

    def status_of(name: str) -> int:
        return press(one, pressed[name], made[name])

    monkeypatch.setattr(one.served.store, "maintain", lambda *_: goes_on.wait(20))
    assert [status_of("alice") for _ in range(3)] == [303, 303, 503]
    assert [status_of(name) for name in ("bob", "bob", "carol")] == [303, 303, 503]
    goes_on.set()
    until(lambda: status_of("carol") == 303)


def test_a_thread_that_does_not_start_takes_no_place(port: Callable[..., Port]) -> None:
    one, buttons = port(), Buttons()
    visit = Visit(one.served.server, None)

    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    for _ in range(9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            with pytest.raises(RuntimeError):
                buttons.press(visit, {"op": "flush", "table": "homes"})
    buttons.press(visit, {"op": "flush", "table": "homes"})
    assert done(one) == [("flush", "homes", "")]


def test_buttons_are_for_those_who_may_maintain_and_audited(port: Callable[..., Port], tmp_path: Path) -> None:
    tokens, audit = tmp_path / "tokens.json", tmp_path / "audit.log"
    (alice, _), (bob, _) = create_token(tokens, "alice"), create_token(tokens, "bob")
    one = port(ServeOptions(tokens=tokens, admins=("alice",), audit_log=audit))
    one.served.store.grant(GrantChange(user="bob", table="homes", privileges=[Privilege.READ]))
    of_alice = forms(one.ask("/console/table?name=homes", alice)[1])[0]
    assert forms(one.ask("/console/table?name=homes", bob)[1]) == []
    assert press(one, of_alice, bob) == 403  # her token is not his
    assert press(one, of_alice) == 401
    one.served.store.grant(GrantChange(user="bob", table="homes", privileges=[Privilege.MAINTAIN]))
    of_bob = forms(one.ask("/console/table?name=homes", bob)[1])[0]
    assert press(one, {**of_bob, "table": "castles"}, bob) == 404
    assert press(one, {**of_bob, "seconds": "600"}, bob) == 403
    assert press(one, of_bob, bob) == 303 and done(one) == [("flush", "homes", "")]
    one.served.store.revoke(GrantChange(user="bob", table="homes", privileges=[Privilege.MAINTAIN]))
    assert press(one, of_bob, bob) == 403
    assert press(one, {**of_alice, "seconds": "600"}, alice) == 303
    entries = [json.loads(line) for line in audit.read_text().splitlines()]
    told = [(each["user"], each["action"], each["outcome"]) for each in entries]
    assert told == [
        ("bob", "maintain", "denied"),
        ("bob", "pause_maintenance", "denied"),
        ("bob", "maintain", "ok"),
        ("bob", "maintain", "denied"),
        ("alice", "pause_maintenance", "ok"),
    ]
    assert (entries[-1]["op"], entries[-1]["seconds"]) == ("flush", 600)
