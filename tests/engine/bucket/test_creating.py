"""No error is an answer to ``create``; the object is."""

import errno
import itertools
import threading
from collections.abc import Callable

import pytest

from nyala.engine.bucket import MemoryBucket, Patience, PatientBucket
from nyala.engine.bucket.directory import DirectoryObjects
from nyala.engine.bucket.memory import MemoryObjects
from nyala.engine.bucket.objects import Objects
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.schemas.errors import UnavailableError
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.doubles.faulty_bucket import CHANGES, Fault, FaultyBucket, impatience

UNANSWERED = [Fault.BEFORE, Fault.AFTER, Fault.TWICE, Fault.LATE, Fault.CONFLICT, Fault.FORBIDDEN]


@pytest.mark.parametrize("fault", UNANSWERED)
def test_one_fault_at_every_call_is_overcome(fault: Fault) -> None:
    for number in range(1, 6):
        bucket = FaultyBucket(faults={number: fault})
        assert bucket.create("a", b"mine")
        assert not bucket.create("a", b"yours")
        assert bucket.create("a", b"mine")
        bucket.objects.land_late_ones()
        assert bucket.objects.inner.get("a") == b"mine"


@pytest.mark.parametrize(
    "faults",
    [
        faults
        for faults in itertools.product(UNANSWERED, repeat=3)
        if faults[:2] != (Fault.FORBIDDEN, Fault.FORBIDDEN)  # which is told at once
    ],
)
def test_three_faults_in_a_row_are_overcome(faults: tuple[Fault, ...]) -> None:
    bucket = FaultyBucket(faults=dict(enumerate(faults, 1)), attempts=9)
    assert bucket.create("a", b"mine")
    bucket.objects.land_late_ones()
    assert bucket.objects.inner.get("a") == b"mine"
    assert not bucket.create("a", b"yours")


@pytest.mark.parametrize("fault", UNANSWERED)
def test_others_bytes_are_never_taken_for_ours(fault: Fault) -> None:
    for number in range(2, 6):
        bucket = FaultyBucket(faults={number: fault})
        assert bucket.create("a", b"yours")
        assert not bucket.create("a", b"mine")
        bucket.objects.land_late_ones()
        assert bucket.objects.inner.get("a") == b"yours"


def test_an_answer_that_is_lost_at_each_attempt_of_two() -> None:
    objects = FaultyBucket(faults=dict.fromkeys(range(1, 20, 2), Fault.AFTER), attempts=9).objects
    one, two = PatientBucket(objects, impatience(9)), PatientBucket(objects, impatience(9))
    assert one.create("a", b"one")
    assert not two.create("a", b"two")
    assert one.get("a") == b"one"


def test_a_store_that_stays_away_leaves_the_outcome_unknown() -> None:
    bucket = FaultyBucket(away_from=0, attempts=4)
    with pytest.raises(UnavailableError, match=r"may or may not have created a: the outcome is unknown"):
        bucket.create("a", b"mine")
    assert [call.verb for call in bucket.objects.calls] == ["put_if_absent", "get"] * 4
    assert bucket.objects.effects == []


def test_an_unknown_outcome_is_learned_later() -> None:
    bucket = FaultyBucket(faults={1: Fault.AFTER})
    bucket.objects.away_from = 1
    with pytest.raises(UnavailableError, match="outcome is unknown"):
        bucket.create("a", b"mine")
    bucket.objects.away_from = None
    assert bucket.create("a", b"mine")
    assert bucket.objects.effects == [("put_if_absent", "a")]


def test_a_late_attempt_lands_after_somebody_else() -> None:
    bucket = FaultyBucket(faults={1: Fault.LATE}, late_by=100, attempts=1)
    bucket.objects.is_away = False
    bucket.objects.faults[2] = Fault.BEFORE
    with pytest.raises(UnavailableError):
        bucket.create("a", b"mine")
    assert bucket.create("a", b"yours")
    bucket.objects.land_late_ones()
    assert bucket.objects.inner.get("a") == b"yours"
    assert not bucket.create("a", b"mine")


def test_the_outcome_of_a_creation_is_never_guessed() -> None:
    """Of a store that refuses everything, nothing is known, whatever its errors say."""
    for fault in (Fault.CONFLICT, Fault.FORBIDDEN):
        bucket = FaultyBucket(faults=dict.fromkeys(range(1, 100, 2), fault), attempts=5)
        with pytest.raises(UnavailableError, match="outcome is unknown"):
            bucket.create("a", b"mine")


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.TWICE, Fault.LATE])
def test_every_other_verb_is_repeated(fault: Fault) -> None:
    for number in range(1, 9):
        bucket = FaultyBucket(faults={number: fault}, late_by=0)
        bucket.put("a", b"0123")
        assert bucket.get("a") == b"0123"
        assert bucket.get_ranges("a", [(1, 2), (3, 1)]) == [b"12", b"3"]
        assert bucket.size("a") == 4
        assert bucket.list("") == [("a", 4)]
        bucket.copy("a", "b")
        bucket.delete(["a"])
        assert bucket.list("") == [("b", 4)]
        changes = {call.number for call in bucket.objects.calls if call.verb in CHANGES}
        fails = fault is not Fault.TWICE and (fault is not Fault.LATE or number in changes)
        assert len(bucket.objects.calls) >= 7 + fails


def test_refused_credentials_are_told_at_once() -> None:
    bucket = FaultyBucket(faults={2: Fault.FORBIDDEN})
    bucket.put("a", b"x")
    with pytest.raises(UnavailableError, match="could not get a: forbidden"):
        bucket.get("a")
    assert len(bucket.objects.calls) == 2


def test_a_creation_whose_credentials_are_refused_is_told_at_once() -> None:
    bucket = FaultyBucket(faults=dict.fromkeys(range(1, 100), Fault.FORBIDDEN))
    with pytest.raises(UnavailableError, match="could not create a: forbidden"):
        bucket.create("a", b"mine")
    assert [call.verb for call in bucket.objects.calls] == ["put_if_absent", "get"]


@pytest.mark.parametrize("first", [Fault.BEFORE, Fault.LATE, Fault.AFTER])
def test_an_attempt_without_an_answer_may_land_though_later_ones_are_refused(first: Fault) -> None:
    faults = {1: first, **dict.fromkeys(range(2, 8), Fault.FORBIDDEN)}
    bucket = FaultyBucket(faults=faults, late_by=7)
    assert bucket.create("a", b"mine")
    bucket = FaultyBucket(faults=faults | dict.fromkeys(range(8, 99), Fault.FORBIDDEN), late_by=100)
    with pytest.raises(UnavailableError, match="outcome is unknown"):
        bucket.create("a", b"mine")
    bucket.objects.land_late_ones()


@pytest.mark.parametrize("inner", [MemoryObjects, lambda: DirectoryObjects(MemoryFileSystem())])
def test_a_content_that_cannot_be_read_is_not_the_buckets_fault(inner: Callable[[], Objects]) -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), [FaultRule(calls=frozenset({"pread"}), sticky=True)])
    file = fs.create("cached")
    file.append(b"x" * 100)
    file.close()
    bucket = FaultyBucket(inner())
    with pytest.raises(OSError, match="cached") as raised:
        bucket.put("a", fs.open("cached"))
    assert raised.value.errno == errno.EIO
    assert len(bucket.objects.calls) == 1


def test_patience_ends_and_the_pauses_grow() -> None:
    now, pauses = [0.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    patience = Patience(3.0, 0.1, 1.0, lambda: now[0], sleep)
    assert len(list(patience.attempts())) == len(pauses) + 1
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert now[0] <= 3.0


def test_a_wait_is_a_wait() -> None:
    assert len(list(Patience(0.2, 0.05, 0.05).attempts())) in (2, 3, 4)


def test_many_creators_over_a_faulty_store() -> None:
    """Each of the racers is told True for exactly the objects that have its bytes."""
    faults = {number: UNANSWERED[number % 5] for number in range(1, 20_000, 2)}
    objects = FaultyBucket(faults=faults, late_by=7).objects
    claimed: list[set[int]] = [set() for _ in range(6)]
    errors: list[BaseException] = []

    def race(racer: int) -> None:
        bucket = PatientBucket(objects, impatience(50))
        try:
            for number in range(100):
                if bucket.create(f"log/{number}", b"of racer %d" % racer):
                    claimed[racer].add(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=race, args=(racer,)) for racer in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    objects.land_late_ones()
    inner = objects.inner
    owners = [int(inner.get(f"log/{number}").split()[-1]) for number in range(100)]
    assert claimed == [{number for number in range(100) if owners[number] == racer} for racer in range(6)]


def test_error_numbers_of_a_missing_object() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        MemoryBucket().get("a")
    assert caught.value.errno == errno.ENOENT
