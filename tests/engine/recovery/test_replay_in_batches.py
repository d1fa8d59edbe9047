"""The log is replayed in batches, with the outcome of one record after the other."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.recovery import recovery
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from tests.dose import by_night
from tests.engine.recovery.histories import History, positions, remembered, seen
from tests.engine.recovery.one_by_one import one_by_one


def opened(disk: MemoryFileSystem, options: StoreOptions) -> tuple[Any, Any, Any]:
    """Return what a store on the disk shows once it has replayed its log."""
    with Database(Store.open(disk, options)) as database:
        store: Any = database._store
        assert not store.health().damaged
        return positions(store), remembered(store), seen(database)


@pytest.mark.parametrize("seed", by_night(range(12), range(4)))
def test_any_history_is_replayed_in_batches_as_one_by_one(seed: int) -> None:
    history = History(seed)
    history.run(120)
    alive = seen(history.database)
    in_batches = opened(history.image(), history.options)
    with one_by_one():
        alone = opened(history.image(), history.options)
    assert in_batches == alone
    assert in_batches[2] == alive
    history.database.close()


@pytest.mark.parametrize("seed", by_night(range(4), range(2)))
def test_batches_of_every_size_and_flushes_between_them_end_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    history, random = History(100 + seed), Random(seed)
    history.run(60)
    alive = seen(history.database)
    disk = history.image()
    for _ in range(4):
        monkeypatch.setattr(recovery, "_AT_ONCE_BYTES", random.choice([200, 1_000, 10_000]))
        flush = random.choice([1, 4_000, 1 << 30])
        options = history.options.model_copy(update={"flush_bytes": flush, "flush_deltas_bytes": flush})
        with Database(Store.open(disk, options)) as database:
            assert seen(database) == alive
            disk = disk.crash_image(random)
    assert verify_store(disk).is_sound
    history.database.close()
