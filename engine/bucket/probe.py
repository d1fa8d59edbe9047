"""Does a store keep its word? Asked before anything is trusted to it: some ignore the condition of a put, or check it
and put without a lock, and some list what was written a while ago.

A probe sees what a healthy store does. It cannot see what a store does once some of its machines are away; for that
there are minimum versions to go by.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...schemas.errors import InvalidArgumentError
from .. import threads
from .at_once import asking, at_once
from .bucket import Bucket
from .patient import PatientBucket

_RACES, _RACERS = 4, 4
_TRIES = 3
_START_SECONDS = 10  # to start that many threads; where there can be no more of them, nobody waits for ever


def probe(bucket: Bucket, token: str, beside: Sequence[Bucket] = ()) -> None:
    """Try in a bucket what a store needs of it, under ``probe/<token>/``, and delete that again: some thirty requests.

    ``token`` is a name that no other probe uses. The racers for one name go over ``bucket`` and those ``beside`` it in
    turn: other ways to the same objects.

    Raises:
        InvalidArgumentError: the store does not do what ``Bucket`` promises.
        UnavailableError: it does not answer, or refuses the credentials.
    """
    for number in range(1, _TRIES + 1):
        before = _unanswered([bucket, *beside])
        try:
            return _probe(bucket, f"probe/{token}/{number}/", beside)
        except (InvalidArgumentError, OSError):
            # A request that was given up may have landed after those that followed it, and the store did not lie.
            if number == _TRIES or _unanswered([bucket, *beside]) == before:
                raise


def _unanswered(buckets: Sequence[Bucket]) -> int:
    return sum(bucket.unanswered for bucket in buckets if isinstance(bucket, PatientBucket))


def _probe(bucket: Bucket, place: str, beside: Sequence[Bucket]) -> None:
    bucket.list(place)  # a store that is away, or refuses us, says so here
    one, first = f"{place}create/one", f"{place}names/first"
    races = [f"{place}race-{number}" for number in range(_RACES)]
    parts = [
        partial(_probe_create, bucket, one),
        partial(_probe_names, bucket, f"{place}names/", first),
        *(partial(_probe_race, [bucket, *beside], name) for name in races),
    ]
    try:
        with threads.ThreadPoolExecutor(len(parts), "nyala-probe-part") as pool:  # an opening waits for it
            for done in [pool.submit(part) for part in parts]:
                done.result()
    except BaseException:
        bucket.delete([name for name, _ in bucket.list(place)])
        raise
    bucket.delete([one, first, *races])
    _require(not bucket.list(place), bucket, "lists objects that were deleted")


def _probe_create(bucket: Bucket, name: str) -> None:
    _require(bucket.create(name, b"first"), bucket, "does not create an object whose name is free")
    _require(not bucket.create(name, b"second"), bucket, "creates an object whose name is taken")
    with asking() as ask:
        content, is_created = ask.submit(bucket.get, name), ask.submit(bucket.create, name, b"first")
    _require(content.result() == b"first", bucket, "replaces an object, although it answers that the name is taken")
    _require(is_created.result(), bucket, "does not return the bytes that were put")


def _probe_names(bucket: Bucket, place: str, first: str) -> None:
    name = f"{place}put"
    at_once(lambda each: bucket.put(*each), [(first, b"first"), (name, b"old")])
    bucket.put(name, b"newer")
    with asking() as ask:
        content, part = ask.submit(bucket.get, name), ask.submit(bucket.get_range, name, 1, 3)
        found, later = ask.submit(bucket.list, place), ask.submit(bucket.list, place, first)
    _require(content.result() == b"newer", bucket, "returns the old bytes of a replaced object")
    _require(part.result() == b"ewe", bucket, "returns the wrong range of an object")
    expected = [(first, 5), (name, 5)]
    _require(found.result() == expected, bucket, "does not list what was written")
    _require(later.result() == expected[1:], bucket, "does not start a listing after a given name")
    bucket.delete([name, f"{place}missing"])
    try:
        bucket.get(name)
    except FileNotFoundError:
        return
    _require(False, bucket, "returns objects that were deleted")


def _probe_race(buckets: Sequence[Bucket], name: str) -> None:
    racers = max(_RACERS, len(buckets))
    start = threads.Barrier(racers)

    def race(racer: int) -> bool:
        start.wait(_START_SECONDS)
        return buckets[racer % len(buckets)].create(name, b"racer %d" % racer)

    with threads.ThreadPoolExecutor(racers, "nyala-probe") as pool:
        won = [racer for racer, has_won in enumerate(pool.map(race, range(racers))) if has_won]
    _require(len(won) == 1, buckets[0], f"lets {len(won)} of {racers} create one object")
    _require(buckets[0].get(name) == b"racer %d" % won[0], buckets[0], "keeps bytes of a request that it refused")


def _require(is_so: bool, bucket: Bucket, otherwise: str) -> None:
    if not is_so:
        raise InvalidArgumentError(
            f"{bucket!r} {otherwise}: rows would be lost there; choose a store with conditional puts and listings "
            "that are strongly consistent"
        )
