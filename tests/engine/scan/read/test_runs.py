"""Cuts of many runs at keys between their rows."""

import numpy as np
import pytest

from nyala.engine.scan.read.runs import KeyRun, Span, spans_by_batch
from nyala.engine.vectors.keys.keys import U64Keys, key_bytes


def spans_of(lengths: list[int]) -> list[Span]:
    """Interleaved runs of distinct keys, of such lengths."""
    runs = [
        np.sort(np.random.default_rng(number).permutation(10_000)[:length]) for number, length in enumerate(lengths)
    ]
    words = [(keys * len(lengths) + number).astype(np.uint64) for number, keys in enumerate(runs)]
    return [Span(KeyRun(U64Keys(keys, 8), []), 0, len(keys)) for keys in words]


@pytest.mark.parametrize("lengths", [[100] * 200, [1] * 3000, [9_000, *[10] * 500], [5_000, 3, 4_000, 1]])
def test_runs_of_any_length_are_cut(lengths: list[int]) -> None:
    """Also where each is shorter than the distance at which keys are looked at."""
    parts = list(spans_by_batch(spans_of(lengths), 1_000))
    assert sum(len(span) for part in parts for span in part) == sum(lengths)
    sizes = [sum(map(len, part)) for part in parts]
    assert max(sizes) < 4_000  # about even
    ends = [max(span.last_key for span in part) for part in parts]
    starts = [min(key_bytes(span.run.keys, span.first) for span in part) for part in parts]
    assert all(end < start for end, start in zip(ends[:-1], starts[1:], strict=True))
