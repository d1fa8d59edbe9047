"""One figure for memory is shared out to the options that have none of their own."""

import pytest
from pydantic import ValidationError

from nyala.engine.options import MIB, StoreOptions
from nyala.schemas.limits.usable import usable_memory

DEFAULTS = StoreOptions()
LARGEST = StoreOptions(budget_bytes=1 << 40)
PARTS = ("memory_bytes", "key_index_bytes", "pages_min", "wal_queue_bytes")


@pytest.mark.parametrize("megabytes", [16, 512, 4096])
def test_the_parts_of_a_budget_leave_room_for_work(megabytes: int) -> None:
    budget = megabytes * MIB
    options = StoreOptions(budget_bytes=budget)
    assert budget // 2 < sum(getattr(options, name) for name in PARTS) <= budget * 7 // 8
    assert options.flush_bytes + options.flush_deltas_bytes < options.memory_bytes * options.memory_soft_share
    assert options.flush_bytes <= LARGEST.flush_bytes == 96 * MIB and LARGEST.reads_bytes == 1536 * MIB


def test_what_is_given_beside_a_budget_stays() -> None:
    options = StoreOptions(budget_bytes=512 * MIB, key_index_bytes=0, flush_bytes=7)
    assert (options.key_index_bytes, options.flush_bytes, options.memory_bytes) == (0, 7, 256 * MIB)


def test_the_budget_is_a_quarter_of_the_memory_if_none_is_given() -> None:
    quarter = usable_memory() // 4
    assert DEFAULTS.budget_bytes == quarter and StoreOptions(budget_bytes=quarter) == DEFAULTS
    assert DEFAULTS.memory_bytes == quarter // 2 and DEFAULTS.page_cache_bytes is None
    assert StoreOptions(memory_bytes=MIB).key_index_bytes == quarter // 4


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(ValidationError, match="budget_bytes"):
        StoreOptions(budget_bytes=MIB)


@pytest.mark.parametrize(("linger", "lease"), [(1000, 5), (100, 0.5), (120_000, 600)])
def test_a_log_that_waits_until_its_lease_runs_out_is_refused(linger: float, lease: float) -> None:
    assert StoreOptions(log_linger_ms=linger, lease_seconds=lease).log_linger_ms == linger
    with pytest.raises(ValidationError, match=r"log_linger_ms=.* at most .*, a fifth of lease_seconds"):
        StoreOptions(log_linger_ms=linger + 0.1, lease_seconds=lease)
