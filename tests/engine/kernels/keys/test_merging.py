"""Two sorted runs of distinct words become one, by vectors and by plain integers."""

from collections.abc import Callable

import numpy as np
import pytest

from nyala.engine.kernels.simd.cpu import HAS_WIDE_MINIMUM
from nyala.engine.kernels.simd.merge_portable import merge_overlapping_portable, words_of_first

Merge = Callable[[int, int, int, int, int], None]
VARIANTS: dict[str, Merge] = {"portable": merge_overlapping_portable}
if HAS_WIDE_MINIMUM:
    from nyala.engine.kernels.keys.merge_vectors import merge_overlapping

    VARIANTS["vectors"] = merge_overlapping

GUARD = np.uint64(0xA5A5A5A5A5A5A5A5)
TOP = 2**64 - 1


def merged(merge: Merge, left: np.ndarray, right: np.ndarray) -> list[int]:
    """Merge two runs that lie end to end between words that belong to neither."""
    laid = np.concatenate([[GUARD], left, right, [GUARD]]).astype(np.uint64)
    result = np.full(len(laid), GUARD)
    start = laid.ctypes.data + 8
    middle, end = start + 8 * len(left), start + 8 * (len(left) + len(right))
    merge(start, middle, middle, end, result.ctypes.data + 8)
    assert result[0] == result[-1] == GUARD, "wrote past the result"
    return result[1:-1].tolist()


def dealt(words: np.ndarray, to_left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return words[to_left], words[~to_left]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("count", [2, 15, 16, 17, 383, 384, 385, 1_000, 5_001, 60_000])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.95])
@pytest.mark.parametrize("clumps", [1, 9, 700])
def test_runs_that_overlap(variant: str, count: int, share: float, clumps: int) -> None:
    """Rows of one run come singly, in groups that straddle vectors, and in long stretches."""
    random = np.random.default_rng(count)
    words = np.unique(random.integers(0, TOP, count, dtype=np.uint64, endpoint=True))
    to_left = np.repeat(random.random(count) < share, clumps)[: len(words)]
    to_left[random.integers(len(words))] ^= True  # neither is empty, but for the rarest of chances
    left, right = dealt(words, to_left)
    assert merged(VARIANTS[variant], left, right) == words.tolist()
    assert merged(VARIANTS[variant], right, left) == words.tolist()


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_run_ends_early(variant: str) -> None:
    """Mixed at first, in the middle or at last, and one run alone for the rest: merges that take turns end apart."""
    words = np.arange(0, 120_000, 3, dtype=np.uint64)
    mixed = np.random.default_rng(0).random(len(words)) < 0.5
    place = np.arange(len(words))
    for first, last in [(0, 9_000), (15_000, 24_000), (30_000, len(words)), (0, len(words))]:
        for alone in (False, True):
            left, right = dealt(words, np.where((place >= first) & (place < last), mixed, alone))
            assert merged(VARIANTS[variant], left, right) == words.tolist()


@pytest.mark.parametrize("variant", VARIANTS)
def test_least_and_greatest_words(variant: str) -> None:
    """Words are unsigned, and the greatest of all is a word like others."""
    half = np.arange(0, 2_000, 2, dtype=np.uint64)
    left = np.concatenate([half, np.uint64(TOP) - half[::-1]])
    right = np.concatenate([half + np.uint64(1), np.uint64(TOP - 1) - half[::-1]])
    assert merged(VARIANTS[variant], left, right) == np.sort(np.concatenate([left, right])).tolist()


@pytest.mark.parametrize("count", range(8))
def test_how_many_of_the_least_are_of_the_first(count: int) -> None:
    left, right = np.array([1, 4, 5], np.uint64), np.array([0, 2, 3, 9], np.uint64)
    taken = words_of_first(left.ctypes.data, len(left), right.ctypes.data, len(right), count)
    least = np.sort(np.concatenate([left, right]))[:count]
    assert taken == np.isin(left, least).sum()
