"""Fewer processes than before: nothing is deleted that another process does not have.

The processes are servers in this process, without sockets.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.cluster import moving
from nyala.clients.cluster.servers import Servers
from nyala.clients.cluster.store import PlacedStore
from nyala.engine.fs.local import LocalFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.processes.layout import ProcessLayout, names
from nyala.flight_server.serve import processes as serving
from nyala.flight_server.settings.settings import Settings, read_settings
from nyala.flight_server.stores.gateway import Gateway
from nyala.schemas.errors import ConflictError, UnavailableError
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.store.placement import ServerIdentity

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
ROWS = pa.table([pa.array(range(60)), pa.array([1] * 60)], schema=SCHEMA)

Act = Callable[[Servers], object]


class Processes:
    """What Supervisor is, in this process."""

    def __init__(self, layout: ProcessLayout, count: int, _: Settings) -> None:
        placement = layout.placement(count)
        self._stores: dict[str, Store] = {}
        self._gateways: dict[str, Gateway] = {}
        for name in names(count):
            options = StoreOptions(maintenance="off", placement=placement, server=name)
            self._stores[name] = Store.open(layout.directory(name), options)
            self._gateways[name] = Gateway(self._stores[name], ServerIdentity(placement, name))
        self.servers = Servers(placement, known=cast(dict[str, StoreService], self._gateways))
        for gateway in self._gateways.values():
            gateway._servers.close()
            gateway._servers = self.servers
            gateway._all = PlacedStore(self.servers)

    def start(self) -> Servers:
        return self.servers

    def stop(self) -> None:
        for store in self._stores.values():
            store.close()


@pytest.fixture
def layout() -> Iterator[ProcessLayout]:
    """A store of two processes, without tables."""
    with tempfile.TemporaryDirectory() as folder:
        made = ProcessLayout(Path(folder) / "data")
        made.folder.mkdir(parents=True)
        with_processes(made, lambda _: None)
        yield made


def with_processes(layout: ProcessLayout, act: Act) -> None:
    running = Processes(layout, 2, settings_of(layout))
    try:
        act(running.servers)
    finally:
        running.servers.close()
        running.stop()


def settings_of(layout: ProcessLayout, **flags: Any) -> Settings:
    return read_settings({"data": layout.data, **flags}, (), {}, None)


def made(servers: Servers, name: str = "t", buckets: int = 4) -> None:
    db = Database(cast(StoreService, PlacedStore(servers)))
    db.create_table(name, SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=buckets)]).insert(ROWS)


def handed_over(servers: Servers, source: str, target: str) -> None:
    """Move a tablet, and stop before the target serves it."""
    places = PlacedStore(servers).tablets("t").tablets
    tablet = next(place.tablet for place in places if place.server == source)
    moving._Move(servers, "t", tablet, source, target, None)._prepared_and_handed_over()


def moved_back(servers: Servers) -> None:
    store = PlacedStore(servers)
    store.move_tablet("t", store.tablets("t").tablets[0].tablet, "p1", "p0")


def dropped(servers: Servers) -> None:
    PlacedStore(servers).drop_table("t", keep_seconds=3600)


def shrink(layout: ProcessLayout, monkeypatch: pytest.MonkeyPatch, late: Act = lambda _: None) -> None:
    """Go from two processes to one; a client does ``late`` after the tablets were moved."""

    def balanced(servers: Servers, count: int) -> None:
        balance(servers, count)
        late(servers)

    balance = serving.balance
    with monkeypatch.context() as patched, layout.locked():
        patched.setattr(serving, "Supervisor", Processes)
        patched.setattr(serving, "balance", balanced)
        serving._shrink(layout, 2, 1, settings_of(layout))


def check_whole(layout: ProcessLayout, *tables: str) -> None:
    assert not layout.folder.exists()
    with nyala.open(layout.data) as db:
        for table in tables:
            assert db.table(table).scan(ordered=True).to_arrow().equals(ROWS)
            assert not [place for place in db.table(table).tablets() if place.server is not None]


@pytest.mark.parametrize(
    ("late", "tables"),
    [
        (lambda servers: made(servers, "late"), ("t", "late")),
        (moved_back, ("t",)),
        (lambda servers: handed_over(servers, "p0", "p1"), ("t",)),
    ],
    ids=["created", "moved back", "handed over"],
)
def test_what_comes_meanwhile_is_kept(
    layout: ProcessLayout, monkeypatch: pytest.MonkeyPatch, late: Act, tables: tuple[str, ...]
) -> None:
    with_processes(layout, made)
    with pytest.raises(ConflictError, match="start again with the same number of processes"):
        shrink(layout, monkeypatch, late)
    assert layout.count() == 2
    shrink(layout, monkeypatch)
    check_whole(layout, *tables)


def test_a_table_dropped_meanwhile_can_be_recalled(layout: ProcessLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    with_processes(layout, made)
    with pytest.raises(ConflictError, match=r"keeps the dropped table .* until .* UTC; recall it"):
        shrink(layout, monkeypatch, dropped)
    with_processes(layout, lambda servers: PlacedStore(servers).recall_table("t"))
    shrink(layout, monkeypatch)
    check_whole(layout, "t")


def test_a_tablet_between_two_processes_arrives(layout: ProcessLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else of its table moves, and the process that is to have it failed to take it when it was asked."""

    def half_moved(servers: Servers) -> None:
        made(servers, buckets=2)
        handed_over(servers, "p1", "p0")

    with_processes(layout, half_moved)
    monkeypatch.setattr(Gateway, "_settle", lambda *_: None)
    shrink(layout, monkeypatch)
    check_whole(layout, "t")


def test_no_other_server_starts_until_all_is_deleted(layout: ProcessLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    retire, refused = ProcessLayout.retire, []

    def watched(self: ProcessLayout, gone: list[str]) -> None:
        with pytest.raises(UnavailableError):
            LocalFileSystem(self.folder).lock("lock")
        refused.append(gone)
        retire(self, gone)

    monkeypatch.setattr(serving, "Supervisor", Processes)
    monkeypatch.setattr(ProcessLayout, "retire", watched)
    assert not serving.serve_processes(settings_of(layout, processes=1), cast(Any, None))
    assert refused == [["p1"]]


def test_a_server_that_is_refused_deletes_nothing(layout: ProcessLayout) -> None:
    retired = layout.folder / "p2.retired"
    retired.mkdir()
    with closing(LocalFileSystem(layout.folder).lock("lock")), pytest.raises(UnavailableError):
        serving.serve_processes(settings_of(layout, processes=2), cast(Any, None))
    assert retired.exists()


@pytest.mark.parametrize("count", [None, 1])
def test_an_interrupted_deletion_is_finished(layout: ProcessLayout, count: int | None) -> None:
    layout.directory("p1").rename(layout.folder / "p1.retired")
    assert not serving.serve_processes(settings_of(layout, processes=count), cast(Any, None))
    assert not (layout.folder / "p1.retired").exists()
