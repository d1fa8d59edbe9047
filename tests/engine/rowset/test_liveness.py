"""LiveRows against a plain list of bools."""

from random import Random

import numpy as np
import pytest

from nyala.engine.rowset.liveness import LiveRows


def array(rows: list[int]) -> np.ndarray:
    return np.array(rows, np.int64)


@pytest.mark.parametrize("seed", range(10))
def test_any_order_of_deaths_revivals_and_growth(seed: int) -> None:
    random = Random(seed)
    live, model = LiveRows(3), [True] * 3
    for _ in range(60):
        if random.random() < 0.2:
            count = random.randint(0, 40)
            live.grow(count)
            model += [True] * count
        chosen = random.sample(range(len(model)), random.randint(0, len(model)))
        alive = random.random() < 0.5
        live.set(array(chosen), alive)
        for row in chosen:
            model[row] = alive
        assert live.at(np.arange(len(model))).tolist() == model
        assert live.live_count == sum(model)
        assert live.dead_count == model.count(False)


def test_marking_a_row_as_it_is_counts_nothing() -> None:
    live = LiveRows(5)
    live.set(array([1, 2]), True)
    live.set(array([2]), False)
    live.set(array([2, 2][:1]), False)
    assert (live.live_count, live.dead_count) == (4, 1)
    live.set(array([]), False)
    assert live.at(array([])).tolist() == []


def test_rows_that_grow_after_a_death_are_alive() -> None:
    live = LiveRows(2)
    live.set(array([1]), False)
    live.grow(1000)
    assert live.at(array([1001, 1, 0])).tolist() == [True, False, True]
    live.set(array([1001]), False)
    assert live.at(array([1001, 1000])).tolist() == [False, True]


def test_loading_takes_over_all_rows() -> None:
    live = LiveRows(3)
    live.load(np.array([True, False, False]))
    assert live.at(np.arange(3)).tolist() == [True, False, False]
    assert (live.live_count, live.dead_count) == (1, 2)
