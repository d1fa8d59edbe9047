"""The probe passes stores that keep their word, and refuses those that lie."""

import sys
import threading
import time

import pytest

from nyala.engine.bucket import Bucket, MemoryBucket, MemoryObjects, PatientBucket, bucket_of, probe
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from tests.doubles.faulty_bucket import Fault, FaultyBucket, impatience
from tests.doubles.s3_server import KEYS, s3_server, url_of


class IgnoresConditions(MemoryObjects):
    def put_if_absent(self, name: str, content: bytes) -> None:
        self.put(name, content)


class AnswersYesTwice(MemoryObjects):
    """Keeps the first object, and tells the second that it is there, too."""

    def put_if_absent(self, name: str, content: bytes) -> None:
        try:
            super().put_if_absent(name, content)
        except FileExistsError:
            return


class ReplacesAndRefuses(MemoryObjects):
    def put_if_absent(self, name: str, content: bytes) -> None:
        try:
            super().put_if_absent(name, content)
        except FileExistsError:
            self.put(name, content)
            raise


class LooksWithoutLock(MemoryObjects):
    def put_if_absent(self, name: str, content: bytes) -> None:
        if any(found == name for found, _ in self.list("", "")):
            raise FileExistsError(name)
        time.sleep(0.02)
        self.put(name, content)


class ListsLate(MemoryObjects):
    """Lists what was there at the listing before."""

    def __init__(self) -> None:
        super().__init__()
        self._listed: list[tuple[str, int]] = []

    def list(self, prefix: str, after: str) -> list[tuple[str, int]]:
        before, self._listed = self._listed, super().list(prefix, "")
        return [each for each in before if each[0] > after]


class ForgetsDeletions(MemoryObjects):
    def delete(self, names: object) -> None:
        pass


class ServesOldContent(MemoryObjects):
    def __init__(self) -> None:
        super().__init__()
        self._first: dict[str, bytes] = {}

    def get(self, name: str) -> bytes:
        return self._first.setdefault(name, super().get(name))

    def put(self, name: str, content: object) -> None:
        super().put(name, content)  # pyright: ignore[reportArgumentType]
        self.get(name)


class LosesEverything(MemoryObjects):
    def put_if_absent(self, name: str, content: bytes) -> None:
        raise FileExistsError(name)


LIARS = {
    "creates an object whose name is taken": (IgnoresConditions, AnswersYesTwice, ReplacesAndRefuses),
    "create one object": (LooksWithoutLock,),
    "does not list what was written": (ListsLate,),
    "that were deleted": (ForgetsDeletions,),
    "returns the old bytes of a replaced object": (ServesOldContent,),
}


@pytest.mark.parametrize(("why", "liar"), [(why, liar) for why, liars in LIARS.items() for liar in liars])
def test_a_liar_is_refused(why: str, liar: type[MemoryObjects]) -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"memory.* .*{why}.*: rows would be lost there; choose a store with"
    ):
        probe(PatientBucket(liar(), impatience(3)), "1")


def test_a_store_that_creates_nothing_is_away() -> None:
    with pytest.raises(UnavailableError, match="outcome is unknown"):
        probe(PatientBucket(LosesEverything(), impatience(3)), "1")


def test_two_ways_to_different_objects_are_seen() -> None:
    """Two endpoints of one store must refuse what the other has created."""
    with pytest.raises(InvalidArgumentError, match="lets 2 of 4 create one object"):
        probe(MemoryBucket(), "1", [MemoryBucket()])


def test_an_honest_store_passes_and_nothing_is_left() -> None:
    bucket = MemoryBucket()
    bucket.put("log/1", b"kept")
    probe(bucket, "1")
    probe(bucket, "2", [MemoryBucket(bucket.objects)])  # pyright: ignore[reportArgumentType]
    assert bucket.list("") == [("log/1", 4)]


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.TWICE, Fault.CONFLICT])
def test_faults_of_a_network_are_no_lies(fault: Fault) -> None:
    probe(FaultyBucket(faults=dict.fromkeys(range(2, 400, 3), fault), attempts=9), "1")


@pytest.mark.parametrize("late_by", [3, 20])
def test_a_request_that_lands_late_is_no_lie(late_by: int) -> None:
    """The client gave up a request and made it again; it stood in a queue of the store meanwhile."""
    for number in range(1, 41):
        probe(FaultyBucket(faults={number: Fault.LATE}, late_by=late_by, attempts=9), "1")


def test_probes_at_once_do_not_disturb_each_other() -> None:
    bucket: Bucket = MemoryBucket()
    errors: list[Exception] = []

    def run(token: str) -> None:
        try:
            probe(bucket, token)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(f"t{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and bucket.list("") == []


def test_a_server_that_plays_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in KEYS.items():
        monkeypatch.setenv(key, value)
    with s3_server() as address:
        probe(bucket_of(url_of(address)), "1", [bucket_of(url_of(address))])
        assert bucket_of(url_of(address)).list("probe/") == [], "the played S3 has the objects of other tests, too"


def test_racers_do_not_wait_for_threads_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("nyala-probe") and thread.name.endswith("_2"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(sys.modules["nyala.engine.bucket.probe"], "_START_SECONDS", 0.05)
    with pytest.raises(RuntimeError, match="can't start"):
        probe(MemoryBucket(), "1")
