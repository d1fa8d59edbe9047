"""What a holder says is staged is known to whoever has the store next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.bucket.files import BucketFileSystem
from nyala.engine.store import Store
from nyala.engine.wal.slots.standby import Standby
from nyala.schemas.errors import StoreError, UnavailableError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand
from tests.doubles.machines import OPTIONS, Machine
from tests.engine.home.bucket_workloads import SCHEMA

PART = WriteCommand(table="t", stage=Stage(transaction="x", part="1"))
COMMIT = TransactionCommit(transaction="x", parts=["1"])


def made(machine: Machine) -> Store:
    store = Store.open(machine.home(), OPTIONS)
    Database(store).create_table("t", SCHEMA, ["id"])
    return store


def stage(store: Store) -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 1, "v": 2}], SCHEMA)
    assert store.stage(PART, [StagedBatch(batch, Operation.UPSERT)]).rows == 1


def before_the_put(machine: Machine, act: Callable[[], object]) -> None:
    """Let something happen while a staged part is on its way to the bucket."""
    objects: Any = machine.objects
    put = objects.put

    def later(name: str, content: Any) -> None:
        if "/staging/" in name:
            objects.put = put
            act()
        put(name, content)

    objects.put = later


def rows(store: Store) -> list[int]:
    return Database(store).table("t").scan().to_arrow()["id"].to_pylist()


def test_who_has_lost_the_store_acknowledges_no_part() -> None:
    machine = Machine()
    old, taken = made(machine), []
    before_the_put(machine, lambda: taken.append(Store.open(machine.other().home(), OPTIONS)))
    with pytest.raises(UnavailableError) as refused:
        stage(old)
    assert refused.value.locations == [], "it is to be staged elsewhere"
    (new,) = taken
    stage(new)
    assert new.commit_transaction(COMMIT).applied == 1
    assert rows(new) == [1]
    new.close()
    with suppress(StoreError):
        old.close()


def test_a_part_of_a_holder_that_is_replaced_by_force_is_found_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that takes the store lists its files at once, while the former one may still acknowledge."""
    machine, has_listed, is_staged = Machine(), threading.Event(), threading.Event()
    old, taken = made(machine), []
    take_stock = BucketFileSystem.take_stock

    def noted(self: BucketFileSystem) -> None:
        take_stock(self)
        has_listed.set()

    def take() -> None:
        standby, other = Standby(), machine.other()
        home = other.home().by(standby, [])
        home._pause = lambda seconds: has_listed.is_set() and is_staged.wait(30) and machine.boot.pause(seconds)
        standby.take()
        taken.append(Store.open(home, OPTIONS))

    thread = threading.Thread(target=take)

    def begin() -> None:
        thread.start()
        has_listed.wait(30)

    monkeypatch.setattr(BucketFileSystem, "take_stock", noted)
    before_the_put(machine, begin)
    stage(old)
    is_staged.set()
    thread.join()
    (new,) = taken
    Database(new).table("t").upsert([{"id": 0, "v": 0}])  # its lease may be over: time has leapt
    assert new.commit_transaction(COMMIT).applied == 1
    assert rows(new) == [0, 1]
    new.close()
    with suppress(StoreError):
        old.close()
