"""A tablet moves between stores below one root of a bucket, which copies its files: no bytes go through a server."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import pytest

import nyala
from nyala.clients.api.table import Table
from nyala.engine.checkpoint.bucket_copy import BucketCopy
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.home.manifests import file_paths
from nyala.engine.recovery.sweep_bucket import sweep
from nyala.engine.recovery.verify import verify_store
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.schemas.errors import ConflictError, CorruptionError, UnavailableError
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.store.moving import MoveFetch, MoveRead
from nyala.schemas.store.pins import CreatePin
from tests.clients.cluster.bucket_pair import BucketPair
from tests.clients.cluster.rival import COUNT, SCHEMA, Rival, check, rows
from tests.doubles.machines import Machine
from tests.engine.replica.replicas import Follower
from tests.engine.replica.replicas import rows as rows_of


@pytest.fixture
def pair() -> Iterator[BucketPair]:
    made = BucketPair("abc", directories="c", placed_on="ab")
    yield made
    made.close()


@pytest.fixture
def table(pair: BucketPair) -> Table:
    """A table of two tablets, on a and b, with rows in base files and in deltas."""
    made = pair.db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    made.insert(rows(-1))
    made.maintain("flush")
    made.upsert(rows(0))
    made.maintain("flush_deltas")
    return made


def effects_on_files(machine: Machine) -> list[tuple[str, str]]:
    return [(verb, name) for verb, name in machine.objects.effects if "/tablets/" in name]


def move_all(pair: BucketPair, table: Table, source: str, target: str) -> None:
    for place in table.tablets():
        if place.server == source:
            pair.db.move_tablet("t", place.tablet, target, server=source)


def check_all(pair: BucketPair, table: Table) -> None:
    """Check the rows, and what both stores have in their buckets, where nothing swept yet."""
    check(table, 0)
    pair.close()
    pair.check_sound(is_swept=False)


def test_the_bucket_copies_the_files(pair: BucketPair, table: Table) -> None:
    machine, before = pair.machines["b"], len(effects_on_files(pair.machines["b"]))
    move_all(pair, table, "a", "b")
    assert pair.owners("t") == ["b", "b"]
    moved = effects_on_files(machine)[before:]
    assert len(moved) >= 3 and {verb for verb, _ in moved} == {"copy"}
    assert not [call for call in pair.calls if call == "a move_read"]
    check(table, 0)


def test_what_was_copied_is_maintained_and_moves_on(pair: BucketPair, table: Table) -> None:
    """Also as bytes, into a directory: files that were copied, and deltas of them that were written there."""
    moments = [pair.db.now()]
    n = 0

    def changed(*ops: str) -> None:
        nonlocal n
        n += 1
        table.upsert(rows(n))
        for op in ops:
            table.maintain(op)
        moments.append(pair.db.now())

    for source, target, *ops in (
        ("a", "b", "flush_deltas"),
        ("b", "a", "flush_deltas", "major_compact"),
        ("a", "b", "flush_deltas", "minor_compact"),
        ("b", "c", "flush_deltas"),
        ("c", "a"),
        ("a", "b", "flush_deltas", "compact"),
        ("b", "a"),
    ):
        move_all(pair, table, source, target)
        for number, moment in enumerate(moments):
            found = table.scan(as_of=moment, ordered=True).to_arrow().combine_chunks()
            assert found == rows(number).combine_chunks(), (source, target, number)
        changed(*ops)
        if target != "c":
            pair.replace(target)
    check(table, n)
    pair.close()
    pair.check_sound()
    assert verify_store(pair.disks["c"]).is_sound


def test_a_copy_of_a_store_has_what_was_copied(pair: BucketPair, table: Table) -> None:
    move_all(pair, table, "a", "b")
    source, target = pair.machines["b"], Machine()
    pair.stores["b"].create_pin(CreatePin(name="copy"))
    (pin,) = pair.stores["b"].pins()
    run = BucketCopy(source.home("b"), target.home("b"), MemoryFileSystem(), uuid4())
    for file in run.begin(pin.pin_id) or ():
        run.bring(file)
    run.end()
    report = verify_bucket(target.home("b"))
    assert report.is_sound and report.rows >= COUNT, report.problems


def test_a_replica_shows_what_was_copied(pair: BucketPair, table: Table) -> None:
    follower = Follower(pair.machines["a"].other())
    try:
        follower.catch_up()
        move_all(pair, table, "b", "a")
        table.upsert(rows(1).slice(0, COUNT // 2))
        follower.catch_up()
        found = rows_of(follower.replica.scan(ScanSpec(table="t", as_of=follower.replica.safe)))
        assert sorted(row["n"] for row in found) == [0] * (COUNT - COUNT // 2) + [1] * (COUNT // 2)
        move_all(pair, table, "a", "b")
        follower.catch_up()
        assert {place.server for place in follower.replica.tablets("t").tablets} == {"b"}
    finally:
        follower.replica.close()


def test_a_sweep_takes_nothing_that_a_move_needs(pair: BucketPair, table: Table) -> None:
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    for name in "ab":
        sweep(pair.machines[name].other().home(name))
    rival.target.move_prepare(begun)
    told = rival.handed_over(begun)
    for name in "ab":
        sweep(pair.machines[name].other().home(name))
    rival.target.move_take_over(told)
    rival.source.move_forget("first")
    check_all(pair, table)


def test_compactions_at_the_source_leave_what_a_move_copies(pair: BucketPair, table: Table) -> None:
    rival = Rival(pair, table, "first")
    begun = rival.source.move_begin(rival.begin(last=False))
    pair.stores["a"].maintain("t", "compact")
    for _ in range(3):
        pair.stores["a"]._home.check_held()
        pair.stores["a"]._home.remove_garbage()
    assert len(rival.target.move_receive(begun).names) == len(begun.files)
    for file in begun.files:
        rival.target.move_fetch(MoveFetch(move="first", source="a", file=file))
    begun = rival.brought(again=True)
    rival.target.move_prepare(begun)
    rival.target.move_take_over(rival.handed_over(begun))
    rival.source.move_forget("first")
    check_all(pair, table)


def test_files_that_are_gone_or_differ_end_the_move(pair: BucketPair, table: Table) -> None:
    rival = Rival(pair, table, "first")
    begun = rival.source.move_begin(rival.begin(last=True))
    rival.target.move_receive(begun)
    assert begun.objects is not None
    shared, (first, second, *_) = pair.machines["a"].shared, begun.files
    name = begun.objects.directory + first.name
    whole = shared.get(name)
    for torn in (whole + b"x" * 8, whole[:-1]):
        shared.put(name, torn)
        with pytest.raises(CorruptionError):
            rival.target.move_fetch(MoveFetch(move="first", source="a", file=first))
    shared.put(name, shared.get(begun.objects.directory + second.name))
    with pytest.raises(CorruptionError):
        rival.target.move_fetch(MoveFetch(move="first", source="a", file=first))
    shared.delete([name])
    with pytest.raises(ConflictError, match=f"{first.name}' is gone"):
        rival.target.move_fetch(MoveFetch(move="first", source="a", file=first))
    with pytest.raises(ConflictError, match="round is incomplete"):
        pair.stores["b"].move_prepare(begun)
    shared.put(name, whole)
    rival.source.move_abort("first")
    rival.target.move_abort("first")
    check_all(pair, table)


@pytest.mark.parametrize("is_repeated", [True, False])
def test_a_copy_whose_outcome_is_unknown_is_made_again_or_deleted(
    pair: BucketPair, table: Table, monkeypatch: pytest.MonkeyPatch, is_repeated: bool
) -> None:
    bucket = pair.machines["b"].bucket
    copy = bucket.copy

    def lost(source: str, target: str) -> None:
        copy(source, target)
        monkeypatch.undo()
        raise UnavailableError("no answer")

    rival = Rival(pair, table, "first")
    begun = rival.source.move_begin(rival.begin(last=True))
    rival.target.move_receive(begun)
    monkeypatch.setattr(bucket, "copy", lost)
    for number, file in enumerate(begun.files):
        fetch = MoveFetch(move="first", source="a", file=file)
        if number == 0:
            with pytest.raises(UnavailableError, match="no answer"):
                rival.target.move_fetch(fetch)
            if not is_repeated:
                continue
        rival.target.move_fetch(fetch)
    if is_repeated:
        rival.target.move_prepare(begun)
        rival.target.move_take_over(rival.handed_over(begun))
        rival.source.move_forget("first")
    else:
        rival.source.move_abort("first")
        rival.target.move_abort("first")
    gc.collect()
    store = pair.stores["b"]
    for _ in range(3):
        store._home.check_held()
        store._home.remove_garbage()
    there = {name.removeprefix("stores/b/") for name, _ in bucket.list("stores/b/tablets/")}
    assert there == set(file_paths(store._environment.manifest.current))
    check(table, 0)


def test_bytes_that_differ_from_the_bucket_of_the_source_are_refused() -> None:
    """Nobody read all of the file for a checksum of it: its pages, header and footer have their own."""
    pair = BucketPair(one_bucket=False)
    try:
        made = pair.db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
        made.insert(rows(0))
        rival = Rival(pair, made, "first")
        begun = rival.source.move_begin(rival.begin(last=True))
        rival.target.move_receive(begun)
        file = begun.files[0]
        sound = b"".join(pair.stores["a"].move_read(MoveRead(move="first", name=file.name)))
        for place in range(0, len(sound), 7):
            torn = sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :]
            with pytest.raises(CorruptionError):
                pair.stores["b"].move_write("first", file, [torn])
        pair.stores["b"].move_write("first", file, [sound])
        with suppress(ConflictError):
            pair.db.move_tablet("t", rival.tablet, "b", server="a")
        check(made, 0)
    finally:
        pair.close()
    pair.check_sound()
