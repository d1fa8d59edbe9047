"""No operation costs more than it did: ``make counters`` shows the costs, and records them as the new limits."""

import json

import pytest

from tests.campaigns.counters.counting import COUNTERS
from tests.campaigns.counters.operations import ROWS, costs
from tests.campaigns.counters.record import LIMITS

Costs = dict[str, dict[str, int]]
TOLERANCE, FEW = 1.05, 3
"""Versions of Python and of libraries differ a little in what they call and allocate."""


@pytest.fixture(scope="module")
def found() -> Costs:
    return costs()


def test_no_operation_costs_more_than_recorded(found: Costs) -> None:
    limits = json.loads(LIMITS.read_text())
    assert found.keys() == limits.keys()
    exceeded = [
        f"{operation}: {found[operation][counter]:,} {counter}, {limits[operation][counter]:,} at most"
        for operation in found
        for counter in COUNTERS
        if found[operation][counter] > TOLERANCE * limits[operation][counter] + FEW
    ]
    assert not exceeded, "\n".join(exceeded)


def test_the_counters_count(found: Costs) -> None:
    assert found["get a row"]["reads"] == found["get a row"]["writes"] == 0, "its pages are in the cache"
    assert found["insert a row"]["writes"] == found["insert a row"]["syncs"] == 1
    assert found["scan over deltas"]["deltas applied"] > found["scan all"]["deltas applied"] == 0
    assert found["flush"]["bytes written"] > found["insert a row"]["bytes written"] > 0
    assert found["open and scan all"]["pages read"] > 0
    assert found["open and scan all"]["bytes read"] > ROWS
    assert found["scan all"]["allocations"] > found["get a row"]["allocations"] == 0
    assert found["replay 1,000 rows"]["bytes read"] > 100_000
    assert all(cost["functions"] > 10 for cost in found.values())
