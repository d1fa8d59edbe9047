"""The check tells which of the processes of a store has it, and how those that stand by are."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.cluster.upkeep.check_processes import of_processes, process_states
from nyala.clients.cluster.upkeep.check_report import FaultKind
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.jobs import check_cluster
from nyala.schemas.errors import StoreError, UnavailableError
from nyala.schemas.store.whereabouts import Holder, Whereabouts
from tests.doubles.pair import Pair

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two processes of one store; the first has it."""
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    Database(store).create_table("t", SCHEMA, ["id"]).insert({"id": range(9), "v": range(9)})
    pair = Pair(store)
    yield pair
    pair.close()
    store.close()


def states(db: Database) -> list[tuple[str, str]]:
    found = check_cluster(db, timeout_seconds=10, show="off")
    assert found.is_healthy
    return [(each.location, each.state) for each in found.servers[0].processes]


def test_the_holder_and_the_standby_are_told(pair: Pair) -> None:
    with nyala.connect(pair.url) as db:
        assert states(db) == [(pair.first.url, "holder"), (pair.second.url, "standby")]
        assert check_cluster(db).faults == []
        pair.give_to(pair.second)
        assert db.table("t").count() == 9
        assert dict(states(db)) == {pair.first.url: "standby", pair.second.url: "holder"}


def test_a_standby_that_is_away_is_a_warning(pair: Pair) -> None:
    with nyala.connect(pair.url) as db:
        pair.second.die()
        assert states(db) == [(pair.first.url, "holder"), (pair.second.url, "away")]
        (fault,) = check_cluster(db).faults
    assert fault.kind is FaultKind.PROCESS_AWAY and not fault.is_error
    assert f"the process at {pair.second.url} does not answer" in fault.what


def test_a_server_of_one_process_has_no_processes(pair: Pair) -> None:
    with nyala.connect(pair.first.url) as db:
        assert states(db) == []


def where(end: int, age: float, epoch: int = 0, trouble: str | None = None) -> Whereabouts:
    """What a process says; with an epoch it has the store."""
    state = "holder" if epoch else "standby"
    return Whereabouts(name="a", state=state, holder=held(epoch or 7), end=end, age_seconds=age, trouble=trouble)


def held(epoch: int, process: str | None = None) -> Holder:
    return Holder(locations=["grpc://x:1"], epoch=epoch, process=process or f"p{epoch}")


def standby(**update: object) -> Whereabouts:
    return where(100, 0.1).model_copy(update=update)


FAULTS: dict[str, tuple[Whereabouts | StoreError, FaultKind | None, str]] = {
    "fresh": (where(98, 0.4), None, ""),
    "after a release": (standby(holder=None), None, ""),
    "behind": (where(40, 31.0), FaultKind.STANDBY_BEHIND, "nothing new from the log for 31 s, and is 60 slots behind"),
    "new": (Whereabouts(name="a", state="standby"), FaultKind.STANDBY_BEHIND, "h:2 has never read the log"),
    "trouble": (where(99, 0.1, trouble="the disk is full"), FaultKind.STANDBY_TROUBLE, "take the store over: the disk"),
    "away": (UnavailableError("refused"), FaultKind.PROCESS_AWAY, "does not answer: refused"),
    "another name": (standby(name="b"), FaultKind.STANDBY_ELSEWHERE, "h:2 stands by for the store b, not for a"),
    "another bucket": (standby(holder=held(7, "q")), FaultKind.STANDBY_ELSEWHERE, "grpc://x:1 has the store (epoch 7)"),
    "another epoch": (standby(holder=held(6)), FaultKind.STANDBY_ELSEWHERE, "grpc://x:1 has the store (epoch 6)"),
    "another holder": (where(90, 0.1, epoch=6), FaultKind.HOLDERS, r"h:1 (epoch 7) and h:2 (epoch 6) both report"),
    "an old server": (Whereabouts(state="holder"), FaultKind.HOLDERS, "h:1 (epoch 7) and h:2 (an older version) both"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_what_is_wrong_with_a_standby(what: str) -> None:
    other, kind, said = FAULTS[what]
    faults = list(of_processes("a", "the server 'a'", {"h:1": where(100, 0.2, epoch=7), "h:2": other}))
    assert [fault.kind for fault in faults] == ([kind] if kind else [])
    assert all(said in fault.what and fault.is_error is (kind is FaultKind.HOLDERS) for fault in faults)


@pytest.mark.parametrize(("end", "idle_seconds"), [(100, 17.9), (101, 0.1)])
def test_a_standby_of_a_holder_with_a_long_lease_is_well(end: int, idle_seconds: float) -> None:
    """It has seen all slots, or all but the one that the holder has just written."""
    told: dict[str, Whereabouts | StoreError] = {"h:1": where(end, idle_seconds, epoch=7), "h:2": where(100, 18.0)}
    assert list(of_processes("a", "a", told)) == []


def test_two_locations_of_one_process_are_no_two_holders() -> None:
    told: dict[str, Whereabouts | StoreError] = {"h:1": where(5, 0.1, epoch=7), "g:1": where(5, 0.1, epoch=7)}
    assert list(of_processes("a", "a", told)) == []
    assert [each.slots_behind for each in process_states(told)] == [0, 0]
