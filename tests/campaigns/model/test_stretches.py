"""Tables of several pages, against a model of whole columns: every row, at several moments, after each step."""

import pytest

from tests.campaigns.model.stretches import Stretches


@pytest.mark.parametrize("seed", range(3))
def test_a_table_of_stretches_is_its_model(seed: int) -> None:
    Stretches(seed).run(12)
