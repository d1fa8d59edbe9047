"""A short run of the campaign that `make filters` makes long."""

from tests.engine.filter.campaign import run
from tests.engine.filter.mixed import MixedTable


def test_filters_expressions_and_aggregates_agree_with_duckdb() -> None:
    mixed = MixedTable(seed=1)
    try:
        run(mixed, 30, 1)
    finally:
        mixed.close()
