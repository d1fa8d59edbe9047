"""Tables that are altered at random, against a mirror: every row, at every snapshot, after each step."""

import pytest

from tests.campaigns.model.altering import UNUSUAL, Altering
from tests.dose import by_night

SHORT = 10
"""Seconds of history: then compactions leave out rows and values."""


@pytest.mark.parametrize("seed", by_night(range(6), range(2)))
def test_an_altered_table_is_its_mirror(seed: int) -> None:
    Altering(seed).run(60)


@pytest.mark.parametrize("seed", by_night(range(100, 104), [100]))
def test_an_altered_table_with_a_short_history_is_its_mirror(seed: int) -> None:
    Altering(seed, history_seconds=SHORT).run(60)


@pytest.mark.parametrize("seed", by_night(range(200, 202), [200]))
def test_an_altered_table_over_flight_is_its_mirror(seed: int) -> None:
    Altering(seed, over_flight=True).run(40)


@pytest.mark.parametrize("seed", by_night(range(300, 304), [300]))
def test_an_altered_table_of_attached_rowsets_without_an_index_is_its_mirror(seed: int) -> None:
    Altering(seed, history_seconds=SHORT, options=UNUSUAL).run(60)
