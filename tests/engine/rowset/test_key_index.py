"""The key index against a dict, with hashes good and bad."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nyala.engine.rowset.key_index import LOCATION_MAX, KeyIndex
from nyala.engine.vectors.keys.keys import BytesKeys, U64Keys, hash_keys
from nyala.engine.vectors.memory.memory import address_of


def hashes_of(keys: np.ndarray) -> np.ndarray:
    return hash_keys(U64Keys(keys.astype(np.uint64), 8))


class Tablet:
    """Keys that say where they are, and how often they were asked."""

    def __init__(self) -> None:
        self.index = KeyIndex()
        self.key_at: dict[int, int] = {}
        self.calls = 0

    def insert(self, keys: np.ndarray, locations: np.ndarray, hashes: np.ndarray) -> None:
        self.index.insert(hashes, locations)
        self.key_at.update(zip(locations.tolist(), keys.tolist(), strict=True))

    def find(self, keys: np.ndarray, hashes: np.ndarray) -> list[int]:
        def verify(positions: np.ndarray, locations: np.ndarray) -> np.ndarray:
            self.calls += 1
            assert len(positions) == len(locations) > 0
            stored = [self.key_at[location] for location in locations.tolist()]
            return keys[positions] == np.array(stored)

        return self.index.find(hashes, verify).tolist()


def test_an_empty_index_knows_nothing():
    tablet = Tablet()
    assert tablet.find(np.arange(100), hashes_of(np.arange(100))) == [-1] * 100
    assert tablet.find(np.arange(0), hashes_of(np.arange(0))) == []
    assert (tablet.calls, len(tablet.index)) == (0, 0)


def test_many_keys_and_one_comparison():
    tablet = Tablet()
    keys = np.random.default_rng(1).permutation(50_000)
    for part in np.array_split(keys, 7):
        tablet.insert(part, part * 3, hashes_of(part))
    assert len(tablet.index) == len(keys)
    asked = np.arange(0, 100_000, 10)
    expected = [key * 3 if key < 50_000 else -1 for key in asked.tolist()]
    assert tablet.find(asked, hashes_of(asked)) == expected
    assert tablet.calls == 1


def test_keys_that_look_alike_are_told_apart():
    """All tags and homes equal: the probe must go on as far as the right key."""
    tablet = Tablet()
    keys, alike = np.arange(40), np.full(40, 2**63 + 12345, np.uint64)
    tablet.insert(keys, keys + 1000, alike)
    asked = np.arange(-5, 45)
    found = tablet.find(asked, np.full(len(asked), alike[0]))
    assert found == [key + 1000 if 0 <= key < 40 else -1 for key in asked.tolist()]
    assert tablet.calls == 40


@pytest.mark.parametrize("home", [0, 2**64 - 1, 2**64 - 2**60])
def test_a_run_goes_round_the_end_of_the_table(home):
    tablet = Tablet()
    keys, hashes = np.arange(300), np.full(300, home, np.uint64)
    tablet.insert(keys, keys, hashes)
    assert tablet.find(keys, hashes) == keys.tolist()
    tablet.index.remove(hashes[:150], keys[:299:2].copy())
    assert tablet.find(keys, hashes) == [-1 if key % 2 == 0 else key for key in range(300)]


@pytest.mark.parametrize("location", [0, LOCATION_MAX])
@pytest.mark.parametrize("hashed", [0, 2**24 - 1, 2**64 - 1])
def test_the_ends_of_all_ranges(location, hashed):
    tablet = Tablet()
    key, hashes = np.array([1]), np.array([hashed], np.uint64)
    tablet.insert(key, np.array([location]), hashes)
    assert tablet.find(key, hashes) == [location]
    tablet.index.remove(hashes, np.array([location]))
    assert tablet.find(key, hashes) == [-1]


def test_a_location_that_does_not_fit_is_our_bug():
    for location in (-1, LOCATION_MAX + 1):
        with pytest.raises(AssertionError):
            KeyIndex().insert(np.zeros(1, np.uint64), np.array([location]))


def test_what_is_not_there_cannot_be_moved_or_removed():
    tablet = Tablet()
    keys = np.arange(3)
    hashes = hashes_of(keys)
    tablet.insert(keys, keys, hashes)
    with pytest.raises(KeyError):
        tablet.index.remove(hashes, keys + 1)
    with pytest.raises(KeyError):
        tablet.index.relocate(hashes, keys + 7, keys + 9)
    assert len(tablet.index) == 3
    assert tablet.find(keys, hashes) == keys.tolist()


def test_memory_is_what_the_docstring_says():
    index = KeyIndex()
    index.reserve(1_000_000)
    reserved = index.nbytes
    assert reserved / 1_000_000 == pytest.approx(12 / 0.7, rel=0.01)
    keys = np.arange(1_000_000)
    index.insert(hashes_of(keys), keys)
    assert index.nbytes == reserved
    index.insert(hashes_of(keys[:10] + 2_000_000), keys[:10])
    assert index.nbytes == pytest.approx(2 * reserved, rel=0.01)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=200), st.integers(0, 400))
def test_any_hashes(numbers, reserved):
    tablet = Tablet()
    tablet.index.reserve(reserved)
    hashes = np.array(numbers, np.uint64)
    keys = np.arange(len(numbers))
    tablet.insert(keys, keys[::-1].copy(), hashes)
    assert tablet.find(keys, hashes) == keys[::-1].tolist()
    assert len(tablet.index) == len(numbers)


class KeyIndexMachine(RuleBasedStateMachine):
    """Any sequence of changes; hashes of few values, so that runs are long and tags collide."""

    def __init__(self) -> None:
        super().__init__()
        self.tablet = Tablet()
        self.location_of: dict[int, int] = {}
        self.next_location = 0

    def hashes(self, keys: list[int]) -> np.ndarray:
        homes = np.array([key % 7 * (2**64 // 7) for key in keys], np.uint64)
        return homes + np.array([key % 3 for key in keys], np.uint64)

    def new_locations(self, count: int) -> np.ndarray:
        self.next_location += count
        return np.arange(self.next_location - count, self.next_location)

    def some_keys(self, data: st.DataObject) -> list[int]:
        return sorted(data.draw(st.sets(st.sampled_from(sorted(self.location_of)), max_size=40)))

    @rule(keys=st.sets(st.integers(0, 300), max_size=60))
    def insert(self, keys: set[int]) -> None:
        fresh = sorted(keys - self.location_of.keys())
        locations = self.new_locations(len(fresh))
        self.tablet.insert(np.array(fresh, np.int64), locations, self.hashes(fresh))
        self.location_of.update(zip(fresh, locations.tolist(), strict=True))

    @precondition(lambda self: self.location_of)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        keys = self.some_keys(data)
        locations = np.array([self.location_of.pop(key) for key in keys], np.int64)
        self.tablet.index.remove(self.hashes(keys), locations)

    @precondition(lambda self: self.location_of)
    @rule(data=st.data())
    def relocate(self, data: st.DataObject) -> None:
        keys = self.some_keys(data)
        old = np.array([self.location_of[key] for key in keys], np.int64)
        new = self.new_locations(len(keys))
        self.tablet.index.relocate(self.hashes(keys), old, new)
        self.tablet.key_at.update(zip(new.tolist(), keys, strict=True))
        self.location_of.update(zip(keys, new.tolist(), strict=True))

    @rule(count=st.integers(0, 5_000))
    def reserve(self, count: int) -> None:
        self.tablet.index.reserve(count)

    @invariant()
    def every_key_is_where_the_dict_says(self) -> None:
        keys = list(range(301))
        expected = [self.location_of.get(key, -1) for key in keys]
        assert self.tablet.find(np.array(keys), self.hashes(keys)) == expected
        assert len(self.tablet.index) == len(self.location_of)


TestKeyIndexMachine = KeyIndexMachine.TestCase
TestKeyIndexMachine.settings = settings(deadline=None, max_examples=30, stateful_step_count=25)


def test_keys_added_one_by_one_are_where_an_insert_puts_them():
    words = np.random.default_rng(3).integers(0, 1 << 63, 3_000).astype(np.uint64)
    texts = [b"key %d" % word for word in words[:500]]
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    data = np.frombuffer(b"".join(texts), np.uint8)
    hashes = np.concatenate([hash_keys(U64Keys(words, 8)), hash_keys(BytesKeys(offsets, data))])
    together, one_by_one = KeyIndex(), KeyIndex()
    for location, hashed in enumerate(hashes):
        together.insert(np.array([hashed]), np.array([location]))
    for location in range(len(words)):
        one_by_one.add(address_of(words[location : location + 1]), -1, location)
    for i in range(len(texts)):
        one_by_one.add(address_of(data) + int(offsets[i]), len(texts[i]), len(words) + i)
    assert len(together) == len(one_by_one)
    assert (together._slots == one_by_one._slots).all()
    assert (together._hash_bits == one_by_one._hash_bits).all()
