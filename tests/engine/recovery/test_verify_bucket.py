"""Verification of a store in a bucket that a process has."""

from __future__ import annotations

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.schemas.errors import NotFoundError, UnavailableError
from tests.doubles.machines import OPTIONS, Machine

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
ROWSETS = 3


def test_it_ends_as_soon_as_somebody_writes() -> None:
    machine = Machine()
    with Store.open(machine.home(), OPTIONS) as store:
        table = Database(store).create_table("t", SCHEMA, ["id"])
        for each in range(ROWSETS):
            table.insert([{"id": each, "v": 0}])
            store.maintain("t", "flush")
        other = machine.other()
        checked: list[str] = []

        def write(path: str) -> None:
            checked.append(path)
            table.upsert([{"id": 0, "v": 1}])
            other.boot.pass_by(2)

        with pytest.raises(UnavailableError, match=r"writes to it: verify a copy instead \(nyala job copy-store\)"):
            verify_bucket(other.home(), write)
        assert len(checked) == 1
    checked.clear()
    assert verify_bucket(machine.other().home(), checked.append).is_sound
    assert len(checked) == ROWSETS


def test_a_store_that_never_was_is_not_found_and_one_without_its_log_is_damaged() -> None:
    machine = Machine()
    with pytest.raises(NotFoundError, match=r"there is no store at .*: check the URL and the name"):
        verify_bucket(machine.home())
    with Store.open(machine.home(), OPTIONS) as store:
        Database(store).create_table("t", SCHEMA, ["id"])
    home = machine.other().home()
    slots = [name for name, _ in home.bucket.list(f"{home.prefix}log/")]
    assert slots
    home.bucket.delete(slots)
    assert "there is no store" in verify_bucket(home).problems[0]
