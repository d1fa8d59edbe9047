"""The buttons of the console: what they do, for whom, and that nobody else can press them."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from http_client import Port
from test_console import tree, words

from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.settings import ServeOptions
from nyala.schemas.grants import GrantChange, Privilege
from nyala.schemas.service import MaintenanceKind

PATH = "/console/maintenance"


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def press(port: Port, form: dict[str, str], token: str | None = None, origin: str | None = "") -> int:
    """Send a form as a browser does; return the status. ``origin`` is the page's; empty: the console's."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    if origin is not None:
        headers["origin"] = origin or port.http.url
    request = urllib.request.Request(port.http.url + PATH, urllib.parse.urlencode(form).encode(), headers)
    try:
        with urllib.request.build_opener(_Stay).open(request, timeout=20) as answer:
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
    deadline = time.monotonic() + 20
    while not (found := port.served.store.maintenance().done):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return [(each.op or "", each.table, each.error) for each in found]


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
    (until,) = one.served.store.maintenance().paused.values()
    assert before + 3599 < until < time.time() + 3601
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
    time.sleep(0.1)
    assert one.served.store.maintenance().done == []


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
