"""A tablet moves from one server to another: what is there before, meanwhile and afterwards."""

from __future__ import annotations

import threading
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.encryption.opening import opened
from nyala.engine.recovery.verify import verify_store
from nyala.schemas.errors import (
    ConflictError,
    CorruptionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    WrongServerError,
)
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.statement import Statement
from nyala.schemas.rows.transaction import StagedBatch
from nyala.schemas.rows.write import Stage, WriteCommand
from nyala.schemas.store.moving import HandedOver, MoveBegin, MoveHandOver, MoveRead
from nyala.schemas.store.store_key import StoreKey
from tests.campaigns.crash.images import contents
from tests.clients.cluster.cluster import Cluster
from tests.clients.cluster.pair import Pair

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("s", pa.string())])
COUNT = 400


@pytest.fixture
def table(pair: Pair) -> Table:
    return filled(pair.db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)]))


def filled(table: Table) -> Table:
    """Rows in files and in memory, changed and deleted, some of them before the files were written."""
    table.insert(rows(0))
    table.maintain("flush")
    table.upsert(rows(1).slice(0, COUNT // 2))
    table.delete({"id": range(0, COUNT, 10)})
    table.maintain("flush_deltas")
    table.update_ignore(rows(2).slice(COUNT // 4, COUNT // 4))
    return table


def rows(n: int, count: int = COUNT) -> pa.Table:
    ids = np.arange(count)
    return pa.table([pa.array(ids), pa.array(ids * 10 + n), pa.array([f"{n} {i}" for i in ids])], schema=SCHEMA)


def content(table: Table, moment: int | None = None) -> pa.Table:
    return table.scan(as_of=moment).to_arrow().sort_by("id").combine_chunks()


def place_of(table: Table, server: str) -> int:
    return next(place.tablet for place in table.tablets() if place.server == server)


def test_all_of_a_tablet_moves_and_back(pair: Pair, table: Table) -> None:
    before, moment = content(table), pair.db.now()
    seen: list[tuple[int, int]] = []
    number = place_of(table, "a")
    pair.db.move_tablet("t", number, "b", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0
    assert sorted(pair.owners("t")) == ["a", "b", "b", "b"]
    assert content(table) == before == content(table, moment)
    pair.db.move_tablet("t", number, "b")  # it is there: nothing happens
    table.upsert(rows(5))
    assert content(table) == rows(5).combine_chunks()
    assert content(table, moment) == before
    changed = table.changes(since=moment).to_arrow()
    assert changed.num_rows == COUNT
    for name in "ab":
        pair.crash(name)
    assert content(table) == rows(5).combine_chunks()
    assert content(table, moment) == before
    moved = next(place.tablet for place in pair.stores["b"].tablets("t").tablets if place.server is None)
    for place in [place.tablet for place in pair.stores["b"].tablets("t").tablets if place.server is None]:
        moved = max(moved, place)
    pair.db.move_tablet("t", moved, "a", server="b")
    assert sorted(pair.owners("t")) == ["a", "a", "b", "b"]
    for name in "ba":
        pair.crash(name, seed=3)
    assert content(table) == rows(5).combine_chunks()
    assert content(table, moment) == before
    for op in ("flush", "flush_deltas", "compact"):
        table.maintain(op)
    assert content(table) == rows(5).combine_chunks()
    pair.close()
    assert [problem for disk in pair.disks.values() for problem in verify_store(disk).problems] == []


def test_tablets_move_between_encrypted_stores_with_keys_of_their_own() -> None:
    keys = {"a": StoreKey(b"a" * 32), "b": StoreKey(b"b" * 32)}
    pair = Pair("abc", placed_on="ab", keys=keys)
    try:
        table = filled(pair.db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)]))
        before, moment = content(table), pair.db.now()
        for name, to in ("ab", "ba", "ac", "cb"):
            pair.db.move_tablet("t", place_of(table, name), to, server=name)
            assert content(table) == before == content(table, moment)
    finally:
        pair.close()
    for name, disk in pair.disks.items():
        found = {there.startswith(b"NYALAENC") for path, there in contents(disk) if there and "keys" not in path}
        assert found == {name in keys}
        assert verify_store(opened(disk, keys.get(name))).is_sound


def test_writes_and_scans_go_on(cluster: Cluster) -> None:
    db = cluster.connect()
    table = db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=3)])
    table.insert(rows(0))
    failed: list[BaseException] = []
    done = threading.Event()

    def write() -> None:
        try:
            mine = cluster.connect().table("t")
            n = 0
            while not done.is_set() or n < 3:
                n += 1
                mine.upsert(rows(n))
            last.append(n)
        except BaseException as error:
            failed.append(error)

    last: list[int] = []
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for to in ("b", "a", "b"):
            number = place_of(table, "a" if to == "b" else "b")
            snapshot = db.now()
            stream = table.scan(as_of=snapshot).to_reader()
            first = content(table, snapshot)
            db.move_tablet("t", number, to, server="a" if to == "b" else "b")
            assert content(table, snapshot) == first
            assert stream.read_all().sort_by("id").combine_chunks() == first  # planned before, read afterwards
    finally:
        done.set()
        writer.join()
    assert not failed
    assert content(table) == rows(last[0]).combine_chunks()
    assert table.stats()["live_rows"] == COUNT


def test_a_numbered_write_is_known_where_its_tablet_went(pair: Pair, table: Table) -> None:
    command = WriteCommand(table="t", writer="w")
    (batch,) = rows(7).to_batches()
    first = table._store.write(command, batch, 1)
    for number in [place.tablet for place in table.tablets() if place.server == "a"]:
        pair.db.move_tablet("t", number, "b", server="a")
    assert pair.owners("t") == ["b"] * 4
    table.upsert(rows(8))
    for _ in range(2):
        again = table._store.write(command, batch, 1)
        assert (again.rows, again.applied, again.timestamp) == (first.rows, first.applied, first.timestamp)
        assert content(table) == rows(8).combine_chunks()
        pair.crash("b")
    assert table._store.write(command, batch, 2).timestamp > first.timestamp
    assert content(table) == rows(7).combine_chunks()


def test_commits_come_after_those_of_a_clock_that_is_ahead(pair: Pair, table: Table) -> None:
    source, target = (pair.stores[name] for name in "ab")
    ahead = source.now() + (5_000_000 << 12)
    assert source.now(at_least=ahead) >= ahead
    assert target.now() < ahead
    number = place_of(table, "a")
    mine = whole_of(table, "a")
    command = WriteCommand(table="t")
    assert source.write(command, mine).timestamp > ahead
    pair.db.move_tablet("t", number, "b", server="a")
    pair.db.move_tablet("t", place_of(table, "a"), "b", server="a")
    again = target.write(command, mine)
    assert again.timestamp > ahead
    pair.crash("b")
    assert pair.stores["b"].write(command, mine).timestamp > again.timestamp


def test_numbers_of_rows_go_on(pair: Pair) -> None:
    table = pair.db.create_table("log", SCHEMA, ["id"], unique_key=False, partition_by=[nyala.hash("id", buckets=2)])
    same = pa.table({"id": [1, 1, 2, 2, 3, 3], "n": [0] * 6, "s": [None] * 6}, schema=SCHEMA)
    table.insert(same)
    cut = table._store._cache.of("log").by_server(same.to_batches()[0])  # type: ignore[attr-defined]
    mine = same.take(pa.array(cut["a"]))
    for _ in range(9):  # so that the source has given more numbers than the target
        table.insert(mine)
    last_change = table._store.last_change("log")
    (number,) = [place.tablet for place in table.tablets() if place.server == "a"]
    pair.db.move_tablet("log", number, "b", server="a")
    assert table._store.last_change("log") == last_change
    assert table.insert(mine).applied == len(mine)
    last_change = table._store.last_change("log")
    pair.crash("b")
    assert table._store.last_change("log") == last_change
    assert table.insert(mine).applied == len(mine)
    assert table.scan().count() == 6 + 11 * len(mine)


def test_what_cannot_be_moved(pair: Pair, table: Table) -> None:
    number = place_of(table, "a")
    with pytest.raises(InvalidArgumentError, match="connect to one of the servers"):
        Database(cast(StoreService, pair.stores["a"])).move_tablet("t", number, "b")
    with pytest.raises(InvalidArgumentError, match="unknown server 'x'"):
        pair.db.move_tablet("t", number, "x")
    with pytest.raises(NotFoundError, match="no tablet 999"):
        pair.db.move_tablet("t", 999, "b")
    with pytest.raises(NotFoundError, match="'x'"):
        pair.db.move_tablet("x", number, "b")
    stage = WriteCommand(table="t", stage=Stage(transaction="x", part="p"))
    table._store.stage(stage, [StagedBatch(rows(1).to_batches()[0])])
    with pytest.raises(UnavailableError, match="staged"):
        pair.db.move_tablet("t", number, "b", server="a")
    table._store.abort_transaction("x")
    pair.db.move_tablet("t", number, "b", server="a")


def test_bytes_that_are_not_the_source_s(pair: Pair, table: Table) -> None:
    number = place_of(table, "a")
    before = content(table)
    source, target = (pair.stores[name] for name in "ab")
    begun = source.move_begin(MoveBegin(move="m", table="t", tablet=number, to="b", last=True))
    assert len(target.move_receive(begun).names) == len(begun.files)
    with pytest.raises(UnavailableError, match="tablet with some of these rows is moving"):
        source.write(WriteCommand(table="t"), whole_of(table, "a"))
    for file in begun.files:
        sound = b"".join(source.move_read(MoveRead(move="m", name=file.name)))
        middle = len(sound) // 2
        for torn in (sound[:-1], sound + b"x", b"", sound[:middle] + bytes([sound[middle] ^ 1]) + sound[middle + 1 :]):
            with pytest.raises(CorruptionError, match=file.name):
                target.move_write("m", file, [torn])
        with pytest.raises(ConflictError, match="round is incomplete"):
            target.move_prepare(begun)
        target.move_write("m", file, [sound[:middle], sound[middle:]])
    with pytest.raises(ConflictError, match="has not prepared"):
        pair.gateways["a"].move_hand_over(MoveHandOver(move="m", table="t", to="b", number=begun.number))
    target.move_prepare(begun)
    with pytest.raises(ConflictError, match="not its last"):
        source.move_hand_over(MoveHandOver(move="m", table="t", to="b", number=begun.number + 1))
    source.move_abort("m")
    with pytest.raises(ConflictError, match="aborted"):
        source.move_hand_over(MoveHandOver(move="m", table="t", to="b", number=begun.number))
    assert pair.gateways["b"].tablets("t")  # which asks the source, and throws away what was prepared
    assert not target.moves("t").arriving
    with pytest.raises(NotFoundError):
        target.move_take_over(HandedOver(move="m", table="t", clock=1, last_auto_id=0, last_change=0))
    assert content(table) == before
    table.upsert(rows(1))


def whole_of(table: Table, server: str) -> pa.RecordBatch:
    """Rows that all belong to a server."""
    (batch,) = rows(3).to_batches()
    mine = table._store._cache.of("t").by_server(batch)[server]  # type: ignore[attr-defined]
    return batch.take(pa.array(mine))


def test_what_changed_since_the_last_round_is_not_lost(pair: Pair, table: Table) -> None:
    number = place_of(table, "a")
    source, target = (pair.stores[name] for name in "ab")
    begun = source.move_begin(MoveBegin(move="m", table="t", tablet=number, to="b", last=True))
    target.move_receive(begun)
    for file in begun.files:
        target.move_write("m", file, source.move_read(MoveRead(move="m", name=file.name)))
    target.move_prepare(begun)
    moving = next(each for each in source._catalog.table("t").tablets if each.tablet_id == number)
    moving.is_closed = None  # as if the driver had been away for long
    table.upsert(rows(9))
    with pytest.raises(UnavailableError, match="changed since"):
        source.move_hand_over(MoveHandOver(move="m", table="t", to="b", number=begun.number))
    assert content(table) == rows(9).combine_chunks()


def test_a_server_that_comes_later_gets_tablets_of_a_table_that_is_there() -> None:
    pair = Pair("abc", placed_on="ab")
    pair.members.names.remove("c")  # as it was before
    levels = [nyala.hash("id", buckets=2), nyala.range("id", bounds=[(0, COUNT)])]
    table = pair.db.create_table("t", SCHEMA, ["id"], partition_by=levels)
    table.insert(rows(0))
    table.alter().add_column("new", "int32").drop_column("s").apply()
    table.alter().split_partition(100).apply()
    table = pair.db.table("t")
    before = table.scan().to_arrow().sort_by("id").combine_chunks()
    pair.members.names.append("c")
    for place in table.tablets()[:2]:
        pair.db.move_tablet("t", place.tablet, "c", server=place.server)
    assert [place.server for place in table.tablets()].count("c") == 2
    pair.crash("c")
    assert table.scan().to_arrow().sort_by("id").combine_chunks() == before
    table.alter().widen_column("new", "int64").apply()
    table = pair.db.table("t")
    table.upsert({"id": range(COUNT), "n": [1] * COUNT, "new": [1 << 40] * COUNT})
    assert table.scan().aggregate({"sum": ("new", "sum")})["sum"][0].as_py() == COUNT << 40
    pair.close()


def test_a_move_that_nobody_drives_is_given_up(pair: Pair, table: Table) -> None:
    number = place_of(table, "a")
    source, target = (pair.stores[name] for name in "ab")
    begun = source.move_begin(MoveBegin(move="m", table="t", tablet=number, to="b"))
    target.move_receive(begun)
    target.move_write("m", begun.files[0], source.move_read(MoveRead(move="m", name=begun.files[0].name)))
    assert not source._mover.removals() and not target._mover.removals()
    for store in (source, target):
        store._mover._now = lambda: store._clock.physical_microseconds() + 3601 * 1_000_000  # noqa: B023
        (operation,) = store._mover.removals()
        operation.perform()
        assert not store._mover.removals()
    with pytest.raises(ConflictError, match="aborted"):
        source.move_read(MoveRead(move="m", name=begun.files[0].name))
    with pytest.raises(NotFoundError, match="no move"):
        target.move_prepare(begun.model_copy(update={"last": True}))
    pair.db.move_tablet("t", number, "b", server="a")


def test_a_range_that_is_divided_while_it_moves(pair: Pair) -> None:
    table = pair.db.create_table("r", SCHEMA, ["id"], partition_by=[nyala.range("id", bounds=[(0, COUNT)])])
    table.insert(rows(0))
    (place,) = table.tablets()
    source, to = str(place.server), "b" if place.server == "a" else "a"
    begun = pair.stores[source].move_begin(MoveBegin(move="m", table="r", tablet=place.tablet, to=to, last=True))
    table.alter().split_partition(100).apply()
    with pytest.raises(ConflictError, match="aborted"):
        pair.stores[source].move_hand_over(MoveHandOver(move="m", table="r", to=to, number=begun.number))
    halves = table.tablets()
    pair.db.move_tablet("r", halves[1].tablet, to)
    assert content(table) == rows(0).combine_chunks()
    pair.crash(source)  # the log still tells of rows of the tablet that was divided
    gone = [each for each in pair.stores[source]._catalog.table("r").tablets if each.elsewhere]
    assert len(gone) == 1
    assert gone[0].is_empty
    table.alter().split_partition(200).apply()
    table.upsert(rows(4))
    assert content(table) == rows(4).combine_chunks()


def test_a_ticket_follows_by_what_its_tablet_holds(pair: Pair, table: Table) -> None:
    before = content(table)
    plan = table._store.plan(ScanSpec(table="t"))
    tickets = [
        ScanSpec(table="t", as_of=plan.snapshot, tablet=split.tablet, partition=split.partition, planned=split.planned)
        for split in plan.splits
    ]
    servers = [str(split.server) for split in plan.splits]
    table.upsert(rows(6))
    for number in [place.tablet for place in table.tablets() if place.server == "a"]:
        pair.db.move_tablet("t", number, "b", server="a")
    parts: list[pa.RecordBatch] = []
    for ticket, server in zip(tickets, servers, strict=True):
        try:
            parts += pair.stores[server].scan(ticket).batches
        except WrongServerError:
            parts += table._store.follow(ticket)  # type: ignore[attr-defined]
    assert pa.Table.from_batches(parts).sort_by("id").combine_chunks() == before


def test_tablets_stay_until_a_numbered_statement_is_through(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the rows of one that moves between two attempts would be changed twice, or not at all."""
    table = pair.db.create_table(
        "t", pa.schema([("id", pa.int64()), ("n", pa.int64())]), ["id"], [nyala.hash("id", buckets=4)]
    )
    table.insert({"id": range(100), "n": [0] * 100})

    def swap() -> None:
        for place in pair.db._store.tablets("t").tablets:
            pair.db._store.move_tablet("t", place.tablet, "b" if place.server == "a" else "a", place.server)

    def away(_: object) -> None:
        raise UnavailableError("nobody answers")

    for how in ({"writer": "w", "seq": 0}, {}):
        monkeypatch.setattr(pair.gateways["b"], "execute", away)
        with pytest.raises(UnavailableError, match="nobody answers") as failed:
            table.update_where({"n": "n + 1"}, **how)
        assert failed.value.__notes__ == ["the statement was already executed on a"]
        monkeypatch.undo()
        if how:
            with pytest.raises(UnavailableError, match="staged"):
                swap()
            pair.crash("a")
            with pytest.raises(UnavailableError, match="staged"):
                swap()
            table.update_where({"n": "n + 1"}, **how)
            assert set(table.scan().to_arrow()["n"].to_pylist()) == {1}
        swap()
        if how:
            assert table.update_where({"n": "n + 1"}, **how).applied == 100
            assert set(table.scan().to_arrow()["n"].to_pylist()) == {1}


def test_tablets_stay_if_the_first_answer_of_a_numbered_statement_got_lost(
    pair: Pair, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = pair.gateways["a"].execute

    def lost(asked: Statement) -> None:
        execute(asked)
        error = UnavailableError("the connection broke")
        error.answer_is_lost = True
        raise error

    monkeypatch.setattr(pair.gateways["a"], "execute", lost)
    with pytest.raises(UnavailableError, match="broke"):
        table.update_where({"n": "n + 1"}, writer="w", seq=0)
    monkeypatch.undo()
    with pytest.raises(UnavailableError, match="staged"):
        pair.db.move_tablet("t", place_of(table, "a"), "b")
    table.update_where({"n": "n + 1"}, writer="w", seq=0)
    pair.db.move_tablet("t", place_of(table, "a"), "b")


@pytest.mark.parametrize("source, target", ["ab", "ba"])
def test_a_half_committed_version_is_applied_once_though_a_tablet_moved(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, source: str, target: str
) -> None:
    """Else a tablet that leaves the server that has committed it would be written twice, and one that comes never."""
    table = pair.db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
    gone = pair.db.create_table("gone", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
    gone.insert(rows(0))

    def attempt() -> bool:
        written = pair.db.transaction(app_id="stream", app_version=7)
        written.truncate("gone")
        written.upsert("t", rows(7))
        try:
            return written.commit().skipped
        except UnavailableError:
            written.abort()  # as if its staged rows had expired
            raise

    def away(_: object) -> None:
        raise UnavailableError("nobody answers")

    monkeypatch.setattr(pair.gateways["b"], "commit_transaction", away)
    with pytest.raises(UnavailableError, match="nobody answers") as failed:
        attempt()
    assert failed.value.__notes__ == ["the transaction was already committed on a"]
    monkeypatch.undo()
    for name in ("t", "gone"):
        with pytest.raises(UnavailableError, match="staged"):
            pair.db.move_tablet(name, place_of(pair.db.table(name), source), target, server=source)
    assert not attempt()
    gone.insert(rows(1))
    table.update_where({"s": "'later'"}, "id < 50")
    for name in ("t", "gone"):
        pair.db.move_tablet(name, place_of(pair.db.table(name), source), target, server=source)
    assert attempt() and table.count("s = 'later'") == 50 and gone.count() == table.count() == COUNT
    assert not any(len(store._staging) for store in pair.stores.values())
