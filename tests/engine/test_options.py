"""One figure for memory is shared out to the options that have none of their own."""

import pytest
from pydantic import ValidationError

from nyala.engine.options import MIB, StoreOptions

DEFAULTS = StoreOptions()
PARTS = ("memory_bytes", "key_index_bytes", "page_cache_bytes", "wal_queue_bytes")


@pytest.mark.parametrize("megabytes", [16, 512, 4096])
def test_the_parts_of_a_budget_leave_room_for_work(megabytes: int) -> None:
    budget = megabytes * MIB
    options = StoreOptions(budget_bytes=budget)
    assert budget // 2 < sum(getattr(options, name) for name in PARTS) <= budget * 7 // 8
    assert options.flush_bytes + options.flush_deltas_bytes < options.memory_bytes * options.memory_soft_share
    assert options.flush_bytes <= DEFAULTS.flush_bytes and options.page_cache_bytes <= DEFAULTS.page_cache_bytes


def test_what_is_given_beside_a_budget_stays() -> None:
    options = StoreOptions(budget_bytes=512 * MIB, key_index_bytes=0, flush_bytes=7)
    assert (options.key_index_bytes, options.flush_bytes, options.memory_bytes) == (0, 7, 256 * MIB)


def test_without_a_budget_nothing_is_shared_out() -> None:
    assert StoreOptions(budget_bytes=None) == DEFAULTS


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(ValidationError, match="budget_bytes"):
        StoreOptions(budget_bytes=MIB)
