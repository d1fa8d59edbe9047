"""Messages of a move that come twice, at once, or after its end: no file is lost, and none stays that nobody names."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import nyala
from nyala.clients.api.table import Table
from nyala.engine.home.manifests import file_paths
from nyala.engine.moving import arrival, arrivals
from nyala.engine.recovery.verify import verify_store
from nyala.schemas.errors import ConflictError, NotFoundError, StoreError, UnavailableError
from nyala.schemas.store.moving import MoveFetch, MoveRead, MoveRound
from tests.clients.cluster.bucket_pair import BucketPair
from tests.clients.cluster.pair import Pair
from tests.clients.cluster.rival import COUNT, SCHEMA, Rival, check, filled, rows


@pytest.fixture(params=["one bucket", "two buckets"])
def pair(request: pytest.FixtureRequest) -> Iterator[BucketPair]:
    made = BucketPair(one_bucket=request.param == "one bucket")
    yield made
    made.close()


@pytest.fixture
def is_near(pair: BucketPair) -> bool:
    """Whether the bucket copies the files."""
    return pair.machines["a"].shared is pair.machines["b"].shared


@pytest.fixture
def table(pair: BucketPair) -> Table:
    return filled(pair)


@pytest.fixture
def bring(pair: BucketPair, is_near: bool, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Takes what happens instead when a file comes to its place; that gets the real call, and its arguments."""
    place: Any = pair.machines["b"].bucket if is_near else arrivals
    name = "copy" if is_near else "write_renumbered"

    def replace(happens: Callable[..., Any]) -> None:
        real = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *arguments: happens(real, *arguments))

    return replace


def fetches(begun: MoveRound) -> list[MoveFetch]:
    return [MoveFetch(move="first", source="a", file=file) for file in begun.files]


def end(pair: BucketPair, rival: Rival, begun: MoveRound) -> None:
    """Let all deletions come that somebody has asked for, and the target take the tablet over."""
    remove_garbage(pair)
    told = rival.handed_over(begun)
    rival.target.move_take_over(told)
    rival.source.move_forget("first")
    remove_garbage(pair)
    pair.replace("b")  # which has nothing in its cache
    assert pair.owners("t") == ["b", "b"]
    check(pair.db.table("t"), 0)


def remove_garbage(pair: BucketPair) -> None:
    gc.collect()
    for _ in range(3):
        pair.stores["b"]._home.check_held()
        pair.stores["b"]._home.remove_garbage()


def check_nothing_stays(pair: BucketPair) -> None:
    """The target has the files that its manifest names, and no others."""
    remove_garbage(pair)
    there = {name.removeprefix("stores/b/") for name, _ in pair.machines["b"].bucket.list("stores/b/tablets/")}
    assert there == set(file_paths(pair.stores["b"]._environment.manifest.current))


@pytest.mark.parametrize("error", [UnavailableError("no answer"), FileNotFoundError("gone"), OSError("disk")])
@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_file_that_is_here_does_not_come_again(
    pair: BucketPair, table: Table, bring: Callable[..., None], error: Exception, is_prepared: bool
) -> None:
    """The second message would fail: its file is as it was."""
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    if is_prepared:
        rival.target.move_prepare(begun)

    def fails(*_: object) -> None:
        raise error

    bring(fails)
    for fetch in fetches(begun):
        with suppress(StoreError):
            rival.target.move_fetch(fetch)
    rival.target.move_prepare(begun)
    end(pair, rival, begun)


def test_two_messages_at_once_bring_one_file(pair: BucketPair, table: Table, bring: Callable[..., None]) -> None:
    """The first stands still, and fails when the second has ended, unless that waits."""
    rival = Rival(pair, table, "first")
    begun = rival.source.move_begin(rival.begin(last=True))
    rival.target.move_receive(begun)
    stands, goes_on, ends = threading.Event(), threading.Event(), threading.Event()
    calls: list[object] = []

    def stand(real: Callable[..., Any], *arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) > 1:
            real(*arguments)
            return
        stands.set()
        assert goes_on.wait(60)
        raise FileNotFoundError("gone")

    bring(stand)
    first, *others = fetches(begun)

    def fetch() -> None:
        with suppress(StoreError):
            rival.target.move_fetch(first)

    def fetch_all_and_prepare() -> None:
        for each in (first, *others):
            rival.target.move_fetch(each)
        rival.target.move_prepare(begun)
        ends.set()

    threads = [threading.Thread(target=fetch), threading.Thread(target=fetch_all_and_prepare)]
    threads[0].start()
    assert stands.wait(60)
    threads[1].start()
    ends.wait(0.3)
    goes_on.set()
    for thread in threads:
        thread.join()
    assert ends.is_set()
    end(pair, rival, begun)


def test_nobody_waits_for_ever_for_a_message_that_stands_still(
    pair: BucketPair, table: Table, bring: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another message of the move is refused, and says what to do: the move made anew, which does not wait for it."""
    monkeypatch.setattr(arrival, "_PATIENCE_SECONDS", 0.2)
    rival = Rival(pair, table, "first")
    begun = rival.source.move_begin(rival.begin(last=True))
    rival.target.move_receive(begun)
    stands, goes_on = threading.Event(), threading.Event()

    def stand(real: Callable[..., Any], *arguments: Any) -> Any:
        if not stands.is_set():
            stands.set()
            assert goes_on.wait(60)
        return real(*arguments)

    bring(stand)
    first, *_ = fetches(begun)

    def fetch() -> None:
        with suppress(StoreError):
            rival.target.move_fetch(first)

    thread = threading.Thread(target=fetch)
    thread.start()
    assert stands.wait(60)
    calls = (lambda: rival.target.move_fetch(first), lambda: rival.target.move_prepare(begun))
    for call, what in zip(calls, ("the file '.*'", "the preparation of the tablet"), strict=True):
        with pytest.raises(UnavailableError, match=f"{what} waits for another request of the move 'first'.*move the "):
            call()
    pair.db.move_tablet("t", rival.tablet, "b", server="a")
    assert pair.owners("t") == ["b", "b"]
    goes_on.set()
    thread.join()
    remove_garbage(pair)
    check(table, 0)


def test_a_message_waits_for_another_one_that_goes_on(pair: BucketPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that takes: each piece of it counts."""
    monkeypatch.setattr(arrival, "_PATIENCE_SECONDS", 0.4)
    first = arrival.Arrival(Rival(pair, filled(pair), "first").brought(), 1)
    begun = threading.Event()

    def bring() -> None:
        with first.turn("it"):
            begun.set()
            for _ in first.counted([b""] * 20):
                time.sleep(0.05)

    thread = threading.Thread(target=bring)
    thread.start()
    assert begun.wait(60)
    with first.turn("another"):
        assert first.steps == 20
    thread.join()


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("verb", ["abort", "drop_idle"])
def test_a_file_that_comes_after_the_move_was_aborted_does_not_stay(
    pair: BucketPair, table: Table, bring: Callable[..., None], verb: str, is_first: bool
) -> None:
    rival = Rival(pair, table, "first")
    begun = rival.source.move_begin(rival.begin(last=True))
    rival.target.move_receive(begun)
    first, *others = fetches(begun)
    if not is_first:
        rival.target.move_fetch(first)
        first = others[0]

    def late(real: Callable[..., Any], *arguments: Any) -> Any:
        rival.source.move_abort("first")
        getattr(pair.stores["b"]._mover.arrivals, verb)("first")
        return real(*arguments)

    bring(late)
    with pytest.raises(ConflictError, match="'first' was aborted"):
        rival.target.move_fetch(first)
    check_nothing_stays(pair)
    with pytest.raises(NotFoundError, match="no move 'first'"):
        pair.stores["b"].move_copy("first", first.file)
    check(table, 0)


def test_files_that_are_prepared_stay_until_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest of the second round does not land: that of the first names files which the second has not."""
    pair = Pair()
    table = pair.db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    for ids in (rows(0).slice(0, COUNT // 2), rows(0).slice(COUNT // 2)):
        table.insert(ids)
        table.maintain("flush")
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    rival.target.move_prepare(begun)
    pair.stores["a"].maintain("t", "compact")
    again = rival.brought(again=True)
    assert not {file.name for file in begun.files} <= {file.name for file in again.files}
    manifest = pair.stores["b"]._environment.manifest

    def fails(*_: object) -> None:
        raise UnavailableError("no manifest")

    with monkeypatch.context() as patched, pytest.raises(UnavailableError, match="no manifest"):
        patched.setattr(manifest, "commit", fails)
        rival.target.move_prepare(again)
    disk = pair.disks["b"]
    assert all(disk.exists(path) for path in file_paths(manifest.current))
    rival.target.move_prepare(again)
    named = set(file_paths(manifest.current))
    directories = {path.rpartition("/")[0] for path in named}
    assert {f"{directory}/{name}" for directory in directories for name in disk.list(directory)} == named
    with pytest.raises(NotFoundError, match="has no file"):
        file = next(file for file in begun.files if file not in again.files)
        pair.stores["b"].move_write("first", file, pair.stores["a"].move_read(MoveRead(move="first", name=file.name)))
    rival.target.move_take_over(rival.handed_over(again))
    rival.source.move_forget("first")
    check(table, 0)
    pair.close()
    assert verify_store(pair.disks["b"]).is_sound
