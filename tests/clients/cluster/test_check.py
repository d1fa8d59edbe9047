"""The check of a cluster finds each fault that is planted, names it, and finds none where there is none."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import pytest

import nyala
from nyala.clients.cluster.upkeep.check_report import Fault
from nyala.clients.jobs.backup import check_job
from nyala.jobs import check_cluster
from nyala.schemas.errors import CorruptionError
from nyala.schemas.store.placement import Placement, ServerIdentity
from nyala.schemas.table.alter import Alteration
from nyala.schemas.table.table import TableDefinition
from tests.clients.cluster.pair import Pair
from tests.clients.cluster.rival import COUNT, SCHEMA, Rival, filled, rows

NOTE = Alteration.model_validate({"table": "t", "steps": [{"op": "add_column", "name": "note", "type": "string"}]})


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_job, "_PAUSES", (0.0, 0.0))


class _Away:
    """In the place of a server's gateway."""

    def __getattr__(self, verb: str) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            raise nyala.UnavailableError("the server cannot be reached: connection refused")

        return refuse


def tablet_of(pair: Pair, server: str, here: bool) -> Any:
    """A tablet of the table as a server has it, which is on that server or on the other one."""
    return next(
        each for each in pair.stores[server]._catalog.table("t").version.tablets if (each.elsewhere is None) is here
    )


def b_is_away(pair: Pair) -> None:
    pair.gateways["b"] = _Away()  # type: ignore[assignment]


def a_is_altered(pair: Pair) -> None:
    pair.gateways["a"].alter_table(NOTE)


def both_are_altered_differently(pair: Pair) -> None:
    pair.gateways["a"].alter_table(NOTE)
    other = {"table": "t", "steps": [{"op": "add_column", "name": "other", "type": "string"}]}
    pair.gateways["b"].alter_table(Alteration.model_validate(other))


def a_tablet_is_doubled(pair: Pair) -> None:
    tablet_of(pair, "b", here=False).elsewhere = None


def a_tablet_is_missing(pair: Pair) -> None:
    tablet_of(pair, "a", here=True).elsewhere = "b"


def b_lacks_a_table(pair: Pair) -> None:
    by = [nyala.hash("id", buckets=4)]
    pair.gateways["a"].create_table(TableDefinition.from_arrow("u", SCHEMA, ["id"], partition_by=by))


def b_is_ahead(pair: Pair) -> None:
    pair.stores["b"]._clock.update(pair.stores["b"].now() + (3_600 * 1_000_000 << 12))


def b_is_a_little_ahead(pair: Pair) -> None:
    pair.stores["b"]._clock.update(pair.stores["b"].now() + (5 * 1_000_000 << 12))


def a_tablet_is_in_quarantine(pair: Pair) -> None:
    tablet_of(pair, "a", here=True).set_in_quarantine(CorruptionError("data/1.base", 7, "a bad checksum"))


def a_file_is_damaged(pair: Pair) -> None:
    pair.db.table("t").maintain("flush")
    disk, store = pair.disks["a"], pair.stores["a"]
    entry = next(each for each in store._environment.manifest.current.tables if each.name == "t")
    tablet = next(each for each in entry.tablets if each.rowsets)
    from nyala.engine.manifest import files

    path = f"{files.directory(tablet.home)}/{tablet.rowsets[0].file_names[0]}"
    assert disk.exists(path)
    store.damage.note(CorruptionError(path, 7, "a bad checksum"))


def b_takes_no_writes(pair: Pair) -> None:
    _with_health(pair, status="read_only", reason="a sync has failed")


def b_is_nearly_full(pair: Pair) -> None:
    _with_health(pair, status="degraded", reason="the disk is nearly full")


def b_has_another_version(pair: Pair) -> None:
    _with_health(pair, version="0.0.1")


def _with_health(pair: Pair, **fields: str) -> None:
    found = pair.stores["b"].health().model_copy(update=fields)
    pair.stores["b"].health = lambda: found  # type: ignore[method-assign]


def b_has_another_placement(pair: Pair) -> None:
    other = pair.placement.model_copy(update={"weights": {"b": 2.0}})
    pair.stores["b"].options = pair.stores["b"].options.model_copy(update={"placement": other})
    assert pair.stores["b"].options.here == ServerIdentity(other, "b")


def a_move_is_prepared(pair: Pair) -> None:
    rival = Rival(pair, pair.db.table("t"), "first")
    rival.target.move_prepare(rival.brought())


FAULTS: dict[Callable[[Pair], None], tuple[str, str, bool]] = {
    b_is_away: ("server_away", "the server 'b': the server cannot be reached", True),
    a_is_altered: ("half_altered", r"different schema versions on the servers \(a: 2, b: 1\).*repeat it", True),
    both_are_altered_differently: ("tables_differ", "differs between the servers 'a' and 'b'", True),
    a_tablet_is_doubled: ("tablet_doubled", r"the tablet of bucket \d of table 't' is on a \(.*\) and b \(", True),
    a_tablet_is_missing: (
        "tablet_missing",
        r"the tablet of bucket \d is on no server, although other servers report that a, b has it",
        True,
    ),
    b_lacks_a_table: ("tablet_missing", "table 'u': .* is on no server, .*; b does not have the table", True),
    b_is_ahead: ("clock_ahead", r"the server 'b' are 3,[56]\d\d\.\d s ahead", True),
    b_is_a_little_ahead: ("clock_ahead", r"the server 'b' are [45]\.\d s ahead", False),
    a_tablet_is_in_quarantine: ("quarantine", "tablet .* of t rejects all reads and writes: .*bad checksum", True),
    a_file_is_damaged: ("damaged_file", r"the file .* of tablet \d+ of t is damaged: a bad checksum", True),
    b_takes_no_writes: ("no_writes", "the server 'b' rejects writes: a sync has failed", True),
    b_is_nearly_full: ("degraded", "the server 'b': the disk is nearly full", True),
    b_has_another_version: ("versions", "different versions: .* on a; 0.0.1 on b", False),
    b_has_another_placement: ("placement", "a and b have different placement files", True),
    a_move_is_prepared: ("move", r"tablet \d+ of table 't' moves from a to b: prepared", False),
}


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(pair: Pair, plant: Callable[[Pair], None]) -> None:
    filled(pair)
    plant(pair)
    kind, what, is_error = FAULTS[plant]
    found = check_cluster(pair.db)
    assert [fault.kind for fault in found.faults if fault.kind == kind], found.faults
    first = next(fault for fault in found.faults if fault.kind == kind)
    assert found.is_healthy is not is_error and first.is_error is is_error
    _matches(first, what)


def _matches(fault: Fault, what: str) -> None:
    assert re.search(what, fault.what), fault.what


def test_a_healthy_cluster_has_no_faults(pair: Pair) -> None:
    table = filled(pair)
    table.maintain("flush")
    pair.db.create_table("u", SCHEMA, ["id"]).insert(rows(1))
    found = check_cluster(pair.db)
    assert found.faults == [] and found.is_healthy and not found.may_pass
    assert [(each.server, each.state) for each in found.servers] == [("a", "ok"), ("b", "ok")]
    assert sum(each.tablets for each in found.servers) == 3
    assert [(each.table, each.tablets, each.found, each.rows) for each in found.tables] == [
        ("t", 2, 2, COUNT),
        ("u", 1, 1, COUNT),
    ]
    assert found.tables[0].servers == {"a": 1, "b": 1} and found.tables[0].bytes > 0
    assert all(each.disk_free_bytes for each in found.servers)


def test_the_tablets_of_a_server_that_is_away_are_named(pair: Pair) -> None:
    filled(pair)
    b_is_away(pair)
    found = check_cluster(pair.db)
    assert [(fault.kind.value, fault.table) for fault in found.faults] == [("server_away", None), ("tablet_away", "t")]
    assert found.tables[0].found == 1 and [each.state for each in found.servers] == ["ok", "away"]


def test_a_server_that_is_silent_is_not_waited_for() -> None:
    """Its machine takes connections, and nobody answers there."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        locations = {"a": (f"grpc://127.0.0.1:{silent.getsockname()[1]}",)}
        with nyala.connect(placement=Placement(servers=locations)) as db:
            found = check_cluster(db, timeout_seconds=0.5)
    assert [(fault.kind.value, fault.server) for fault in found.faults] == [("server_away", "a")]


def test_what_passes_is_looked_at_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are asked one after the other: a tablet that moves between the answers is on both, or on neither."""
    filled(pair)
    ask, looks = check_job.told_by, []

    def first_in_between(*given: Any) -> Any:
        tablet = tablet_of(pair, "a", here=True) if not looks else None
        if tablet is not None:
            tablet.elsewhere = "b"
        found = ask(*given)
        looks.append(found)
        if tablet is not None:
            tablet.elsewhere = None
        return found

    monkeypatch.setattr(check_job, "told_by", first_in_between)
    assert check_cluster(pair.db).faults == [] and len(looks) == 2


def test_a_moment_is_that_of_checksums(pair: Pair) -> None:
    filled(pair)
    moment = pair.db.now()
    pair.db.table("t").upsert(rows(5))
    earlier = check_cluster(pair.db, checksums=True, as_of=moment, show="off")
    assert earlier.snapshot == moment
    for checksums, compare in ((False, None), (False, earlier), (True, earlier)):
        with pytest.raises(nyala.InvalidArgumentError, match="as_of needs checksums"):
            check_cluster(pair.db, checksums=checksums, as_of=moment, compare=compare, show="off")


def test_checksums_are_of_one_snapshot_and_stay_the_same(pair: Pair) -> None:
    table = filled(pair)
    pair.db.create_table("u", SCHEMA, ["id"]).insert(rows(1))
    before = check_cluster(pair.db, checksums=True, show="off")
    assert before.is_healthy and [each.table for each in before.checksums] == ["t", "u"]
    assert {each.snapshot for each in before.checksums} == {before.snapshot}
    assert [each.rows for each in before.checksums] == [COUNT, COUNT]
    assert sum(tablet.rows for tablet in before.checksums[0].tablets) == COUNT
    table.upsert(rows(7))
    number = next(place.tablet for place in table.tablets() if place.server == "a")
    pair.db.move_tablet("t", number, "b", server="a")
    after = check_cluster(pair.db, compare=before, show="off")
    assert after.is_healthy and after.snapshot == before.snapshot
    now = check_cluster(pair.db, checksums=True, show="off")
    assert [each.is_same(old) for each, old in zip(now.checksums, before.checksums, strict=True)] == [False, True]


def test_rows_that_differ_from_an_earlier_check_are_found(pair: Pair) -> None:
    filled(pair)
    before = check_cluster(pair.db, checksums=True, show="off")
    (sums,) = before.checksums
    forged = before.model_copy(update={"checksums": [sums.model_copy(update={"checksum": "0" * 16})]})
    after = check_cluster(pair.db, compare=forged, show="off")
    assert not after.is_healthy
    _matches(after.faults[0], rf"table 't' differs as of {before.snapshot}: it had 60 rows, checksum 0000")


def test_no_rows_are_read_while_a_server_is_away(pair: Pair) -> None:
    filled(pair)
    b_is_away(pair)
    found = check_cluster(pair.db, checksums=True, show="off")
    assert found.checksums == [] and "no rows were read: checksums need an answer from every server" in [
        each.what for each in found.faults
    ]


def test_a_table_with_faults_is_not_read(pair: Pair) -> None:
    filled(pair)
    pair.db.create_table("u", SCHEMA, ["id"]).insert(rows(1))
    a_is_altered(pair)
    found = check_cluster(pair.db, checksums=True, show="off")
    assert [each.table for each in found.checksums] == ["u"]
    assert any("table 't' was not read" in fault.what for fault in found.faults)


def test_a_store_of_one_server_is_checked_too() -> None:
    from nyala.clients.api.database import Database
    from nyala.engine.fs.memory import MemoryFileSystem
    from nyala.engine.options import StoreOptions
    from nyala.engine.store import Store

    with Database(Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))) as db:
        db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=3)]).insert(rows(0))
        found = check_cluster(db, checksums=True, show="off")
    assert found.is_healthy and found.faults == []
    assert [(each.tablets, each.found, each.rows) for each in found.tables] == [(3, 3, COUNT)]
    assert found.checksums[0].rows == COUNT
