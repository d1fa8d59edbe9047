"""Mistakes that others made, or nearly we, planted into a store in a bucket: for each one a test that finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from nyala.engine.bucket.files.deletions import Deletions
from nyala.engine.codecs.checksum import crc32
from nyala.engine.home import bucket as home
from nyala.engine.recovery import sweep_bucket
from nyala.engine.wal.slots import BucketSlots, SlotLog
from nyala.engine.wal.slots.ceiling import CeilingClock
from nyala.engine.wal.slots.chunk import PayloadChunk
from nyala.engine.wal.slots.lease import Lease
from nyala.engine.wal.slots.slot_sink import SlotSink
from nyala.engine.wal.slots.upload import Upload
from nyala.schemas.errors import StoreError
from tests.doubles.s3_server import KEYS
from tests.engine.bucket import test_opening
from tests.engine.home import test_bucket_home, test_two_holders
from tests.engine.home.bucket_faults import DEATH, trial

Plant = Callable[[pytest.MonkeyPatch], object]


def files_without_the_reign(patch: pytest.MonkeyPatch) -> None:
    taken = home.HeldBucket.__init__

    def init(self: Any, *given: Any) -> None:
        taken(self, *given)
        self.first_number = 0

    patch.setattr(home.HeldBucket, "__init__", init)


def ceiling_ignored(patch: pytest.MonkeyPatch) -> None:
    """The first that a clock is told is the ceiling of the last holder."""
    update = CeilingClock.update

    def late(self: Any, timestamp: int) -> None:
        if hasattr(self, "was_told"):
            update(self, timestamp)
        self.was_told = True

    patch.setattr(CeilingClock, "update", late)


def stale_list(patch: pytest.MonkeyPatch) -> None:
    """Whoever lists the log twice gets the first answer twice."""
    end = BucketSlots.end

    def cached(self: Any) -> int:
        self.listed = getattr(self, "listed", 0) or end(self)
        return self.listed

    patch.setattr(BucketSlots, "end", cached)


def fenced_acks(patch: pytest.MonkeyPatch) -> None:
    create = BucketSlots.create
    patch.setattr(BucketSlots, "create", lambda self, number, content: create(self, number, content) or True)


def own_reign_swept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sweep_bucket, "reign_of", lambda name: 0)
    patch.setattr(sweep_bucket, "_reign_of_file", lambda path: 0)
    patch.setattr(sweep_bucket, "reign_of_chunk", lambda name: 0)


def slot_before_its_chunks(patch: pytest.MonkeyPatch) -> None:
    put, land = Upload.put_rest, SlotSink._land

    def foretell(self: Any) -> None:
        contents = [self._content, *self._cut]
        self.chunks = [PayloadChunk(len(each), crc32(each)) for each in contents]
        self._content, self.payload = None, contents

    def land_then_put(self: Any, group: Any, landed: Any) -> None:
        land(self, group, landed)
        if group.upload:
            upload = group.upload
            upload.chunks, upload._cut = [], iter(upload.payload)
            upload._content = next(upload._cut)
            put(upload)

    patch.setattr(Upload, "go_on", foretell)
    patch.setattr(SlotSink, "_land", land_then_put)


def some_call_is_the_last() -> None:
    for number in range(10, 40):
        trial("writes in chunks", DEATH, number)


def deleted_before_the_slot(patch: pytest.MonkeyPatch) -> None:
    def are_free(self: Any) -> bool:
        self._unlinked = (self.fs.deletions.mark(), 0)
        return self.fs.deletions.has_due()

    patch.setattr(home.HeldBucket, "_are_unlinked_free", are_free)


def fenced_deletes(patch: pytest.MonkeyPatch) -> None:
    """What waits is deleted at a stop, whatever became of the log."""
    closed = home.HeldBucket.close

    def close(self: Any) -> None:
        self.fs.deletions.release(self.fs.deletions.mark())
        closed(self)

    patch.setattr(home.HeldBucket, "close", close)
    patch.setattr(Deletions, "abandon", lambda self: None)


def no_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "check", lambda self: None)


def library_repeats(patch: pytest.MonkeyPatch) -> None:
    import obstore.store

    from_url = obstore.store.from_url
    for key, value in KEYS.items():
        patch.setenv(key, value)
    patch.setattr(obstore.store, "from_url", lambda url, retry_config, **how: from_url(url, **how))


def asks_a_server_that_fails() -> None:
    with test_opening.refuser(500) as bucket_and_requests:
        test_opening.test_the_library_repeats_nothing_by_itself(bucket_and_requests)


def with_a_patch(test: Callable[..., None], *given: object) -> Callable[[], None]:
    """Return a test that patches something itself, with its arguments."""

    def run() -> None:
        with pytest.MonkeyPatch.context() as patch:
            test(patch, *given)

    return run


FOUND: list[tuple[Plant, Callable[[], None]]] = [
    (files_without_the_reign, test_two_holders.test_a_file_of_a_former_holder_that_lands_late_overwrites_none),
    (files_without_the_reign, test_bucket_home.test_numbers_of_files_say_the_reign),
    (ceiling_ignored, test_bucket_home.test_a_snapshot_stays_what_it_is_though_the_next_clock_is_behind),
    (stale_list, with_a_patch(test_two_holders.test_a_claim_in_the_place_of_a_freed_slot_holds_nothing)),
    (fenced_acks, test_bucket_home.test_a_holder_that_was_fenced_neither_writes_nor_reads_now),
    (own_reign_swept, with_a_patch(test_two_holders.test_a_sweep_takes_nothing_of_a_flush_that_is_under_way, "before")),
    (own_reign_swept, with_a_patch(test_two_holders.test_a_sweep_takes_no_chunks_that_are_about_to_be_named)),
    (slot_before_its_chunks, some_call_is_the_last),
    (deleted_before_the_slot, test_bucket_home.test_no_file_goes_before_the_slot_that_drops_it),
    (fenced_deletes, test_two_holders.test_a_former_holder_deletes_no_file_any_more),
    (no_lease, test_bucket_home.test_a_silent_holder_does_not_answer_about_now),
    (library_repeats, asks_a_server_that_fails),
]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that fails leaves its stores open: let their logs end, which would go on trying, and say so, for ever."""
    logs: list[SlotLog] = []
    open_log = SlotLog.open

    def opened(*given: Any, **named: Any) -> SlotLog:
        logs.append(open_log(*given, **named))
        return logs[-1]

    with monkeypatch.context() as patch:
        patch.setattr(SlotLog, "open", opened)
        yield
    for log in logs:
        with suppress(StoreError):
            log.close()


@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize(("plant", "test"), FOUND, ids=lambda each: getattr(each, "__name__", "test"))
def test_a_planted_mistake_is_found(plant: Plant, test: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises((Exception, pytest.fail.Exception)):
        plant(patch)
        test()
