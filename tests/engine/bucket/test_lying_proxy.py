"""Buckets over real HTTP through a proxy that lies: what was told is what is there."""

import threading

import pytest

from nyala.engine.bucket import Patience, bucket_of, probe
from tests.doubles.lying_proxy import LyingProxy, Odds
from tests.doubles.s3_server import url_of

PATIENT = Patience(60.0, 0.01, 0.1)
SLOTS, RACERS = 40, 4
CREATES_FAIL = Odds(error_before=0.1, answer_lost=0.12, error_after=0.12, doubled=0.1, late=0.1, conflict=0.1, cut=0.1)


pytestmark = pytest.mark.usefixtures("keys")


@pytest.mark.parametrize("seed", range(2))
def test_of_many_creators_each_knows_what_it_won(address: str, seed: int) -> None:
    """Rivals for each slot of a log, over two gateways that lie, are told the truth; late requests change nothing."""
    won: list[set[int]] = [set() for _ in range(RACERS)]
    errors: list[BaseException] = []
    with LyingProxy([address], seed, CREATES_FAIL) as one, LyingProxy([address], 100 + seed, CREATES_FAIL) as two:

        def race(racer: int) -> None:
            proxy = (one, two)[racer % 2]
            bucket = bucket_of(url_of(proxy.address, f"race-{seed}"), PATIENT)
            try:
                for slot in range(SLOTS):
                    if bucket.create(f"log/{slot:020d}", b"slot %d of racer %d" % (slot, racer)):
                        won[racer].add(slot)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=race, args=(racer,)) for racer in range(RACERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        honest = bucket_of(url_of(address, f"race-{seed}"))
        before = [honest.get(f"log/{slot:020d}") for slot in range(SLOTS)]
        one.land_late_ones()
        two.land_late_ones()
        events = one.events + two.events
    assert [honest.get(f"log/{slot:020d}") for slot in range(SLOTS)] == before
    owners = [int(content.split()[-1]) for content in before]
    assert won == [{slot for slot in range(SLOTS) if owners[slot] == racer} for racer in range(RACERS)]
    assert before == [b"slot %d of racer %d" % (slot, owner) for slot, owner in enumerate(owners)]
    assert len(honest.list("log/")) == SLOTS
    lies = ("error_before", "answer_lost", "error_after", "doubled", "late", "conflict", "cut")
    assert all(events[lie] for lie in lies), events


def test_a_creator_alone_always_wins(address: str) -> None:
    """What looks like a rival is its own object, each time."""
    with LyingProxy([address], 7, CREATES_FAIL) as proxy:
        bucket = bucket_of(url_of(proxy.address, "alone"), PATIENT)
        assert all(bucket.create(f"log/{slot}", b"mine %d" % slot) for slot in range(SLOTS))
        assert proxy.events["answer_lost"] + proxy.events["error_after"] > 0


def test_every_verb_through_the_proxy(address: str) -> None:
    with LyingProxy(
        [address], 11, Odds(late=0, doubled=0)
    ) as proxy:  # a late put of old bytes is the caller's own business
        bucket = bucket_of(url_of(proxy.address, "verbs"), PATIENT)
        content = bytes(range(256)) * 400
        for number in range(30):
            name = f"tablets/{number}.base"
            bucket.put(name, content)
            assert bucket.get(name) == content
            assert bucket.get_ranges(name, [(10, 20), (50_000, 1000)]) == [content[10:30], content[50_000:51_000]]
            assert bucket.size(name) == len(content)
        assert len(bucket.list("tablets/")) == 30
        bucket.copy("tablets/3.base", "copies/3.base")
        bucket.delete([name for name, _ in bucket.list("tablets/")])
        assert bucket.list("") == [("copies/3.base", len(content))]
        assert proxy.events["cut"] and proxy.events["slow"]


def test_a_probe_takes_a_bad_network_for_no_liar(address: str) -> None:
    with LyingProxy([address], 3, Odds(late=0, doubled=0)) as proxy:
        probe(bucket_of(url_of(proxy.address, "probe"), PATIENT), "1")
