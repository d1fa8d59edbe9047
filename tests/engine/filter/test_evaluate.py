"""What the evaluation of filters keeps."""

from __future__ import annotations

import pyarrow as pa

from nyala.engine.filter.bound import Compare
from nyala.engine.filter.evaluate import Answers, answers_of_values
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector


def test_answers_for_dictionaries_are_kept_within_bounds() -> None:
    leaf, answers = Compare(1, PhysicalType.BYTES, "=", b"7"), Answers()
    for number in range(500):
        values = from_arrow(pa.array([str(n).encode() for n in range(number, number + 30)]), PhysicalType.BYTES)
        assert isinstance(values, BytesVector)
        first = answers_of_values(leaf, values, 1_000, answers)
        assert first is not None and first.tolist() == [n == 7 for n in range(number, number + 30)]
        assert answers_of_values(leaf, values, 1_000, answers) is first
        assert 0 < len(answers) < 100
