"""A server that does not have its store tells no user what others do."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.flight as fl
import pytest

from nyala.flight_server.http.console.requests import scans_page, writes_page
from nyala.flight_server.http.console.visit import Visit
from nyala.flight_server.http.state import ServerState
from nyala.flight_server.requests.recent_requests import RecentRequest
from nyala.flight_server.security.identity import Identity
from nyala.flight_server.stores.absent_store import AbsentStore
from nyala.schemas.errors import PermissionDeniedError
from nyala.schemas.store.whereabouts import Whereabouts
from tests.flight_server.guarded import Guarded

ALICE, ROOT = Identity("alice"), Identity("root", frozenset({"admin"}))
REQUEST = RecentRequest("1", "do_put", "salaries", "bob", "10.0.0.7", 1.0, 0.1, 0, 0, 0, 5, 100, "")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    one = Guarded(tmp_path)
    yield one
    one.close()


def stand_by(guarded: Guarded) -> None:
    guarded.served.server.serve_store(AbsentStore(lambda: Whereabouts(name="a", state="standby"), "1"))


@pytest.mark.parametrize("page", [scans_page, writes_page])
def test_pages_about_all_users_are_for_administrators(guarded: Guarded, page: Callable[[Visit], bytes]) -> None:
    stand_by(guarded)
    server = guarded.served.server
    for who in (ALICE, None):
        visit = Visit(server, who)
        with pytest.raises(PermissionDeniedError, match="has no grants"):
            page(visit)
        assert not visit.operates and not visit.maintains("t")
    assert page(Visit(server, ROOT)) and Visit(server, ROOT).operates


def test_metrics_are_for_administrators(guarded: Guarded) -> None:
    stand_by(guarded)
    server = guarded.served.server
    with pytest.raises(PermissionDeniedError):
        server.metrics(ALICE)
    assert server.metrics(ROOT).families
    with pytest.raises(fl.FlightUnauthorizedError, match="has no grants"):
        guarded.user.action("metrics")
    assert guarded.admin.action("metrics")["families"]
    assert guarded.user.action("health")["status"] == "ok"


def test_what_was_asked_is_forgotten_when_the_store_is_elsewhere(guarded: Guarded) -> None:
    recent = guarded.served.server.calls.recent
    recent.add(REQUEST)
    stand_by(guarded)
    assert b"salaries" not in writes_page(Visit(guarded.served.server, ROOT)).write()


def test_a_standby_that_could_not_take_over_is_degraded(guarded: Guarded) -> None:
    server, state = guarded.served.server, ServerState()
    state.serves(server)
    stand_by(guarded)
    assert (server.store.health().status, state.readiness()) == ("ok", "standby")
    server.serve_store(AbsentStore(lambda: Whereabouts(name="a", state="standby", trouble="no answer"), "1"))
    health = server.store.health()
    assert (health.status, state.readiness()) == ("degraded", "degraded") and "no answer" in health.reason


def test_denials_are_audited_without_the_store_too(guarded: Guarded) -> None:
    stand_by(guarded)
    before = len(guarded.audit.read_text().splitlines())
    with pytest.raises(fl.FlightUnauthorizedError):
        guarded.user.action("metrics")
    visit = Visit(guarded.served.server, ALICE)
    assert not visit.operates and not visit.maintains("t"), "which is asked to make a page, and denies nothing"
    with pytest.raises(PermissionDeniedError):
        scans_page(visit)
    told = [json.loads(line) for line in guarded.audit.read_text().splitlines()[before:]]
    assert [(each["user"], each["action"], each["outcome"]) for each in told] == [
        ("alice", "metrics", "denied"),
        ("alice", "console", "denied"),
    ]
