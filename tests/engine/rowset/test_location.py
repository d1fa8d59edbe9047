"""Locations hold slot and row in 40 bits and fall apart into them again."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.rowset.key_index import LOCATION_MAX
from nyala.engine.rowset.location import ROWS_MAX, SLOTS_MAX, by_slot, pack, rowids_of, slots_of

PLACES = st.lists(st.tuples(st.sampled_from([0, 1, 7, SLOTS_MAX - 1]), st.integers(0, ROWS_MAX - 1)), max_size=30)


@given(PLACES)
def test_a_location_is_its_slot_and_its_row(places: list[tuple[int, int]]) -> None:
    packed = np.array([pack(slot, np.array([row], np.int32))[0] for slot, row in places], np.int64)
    assert list(zip(slots_of(packed).tolist(), rowids_of(packed).tolist(), strict=True)) == places
    assert all(0 <= location <= LOCATION_MAX for location in packed.tolist())


@given(PLACES)
def test_groups_by_slot_name_every_position_once_in_order(places: list[tuple[int, int]]) -> None:
    packed = np.array([pack(slot, np.array([row]))[0] for slot, row in places], np.int64)
    groups = by_slot(packed)
    assert [slot for slot, _ in groups] == sorted({slot for slot, _ in places})
    for slot, positions in groups:
        assert positions.tolist() == [at for at, (other, _) in enumerate(places) if other == slot]


def test_the_last_row_of_the_last_slot_is_the_last_location() -> None:
    assert pack(SLOTS_MAX - 1, np.array([ROWS_MAX - 1])).tolist() == [LOCATION_MAX]
