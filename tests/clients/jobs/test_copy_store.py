"""Copies of a busy store, and two runs to one target at once: one of them says so."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.offline_jobs import store_copy
from nyala.engine.home.bucket import BucketHome
from nyala.engine.home.opening import home_at
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.schemas.errors import ConflictError
from nyala.schemas.store.pins import CreatePin
from tests.doubles.machines import OPTIONS


def test_of_two_runs_to_one_target_one_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NYALA_CACHE_DIR", str(tmp_path / "cache"))
    url, pins = f"file://{tmp_path / 'bucket'}", list[str]()

    def rival(*_: object) -> None:
        (pin,) = store.pins()
        pins.append(pin.name)
        store.drop_pin(pin.pin_id)
        raise FileNotFoundError

    with Store.open(home_at(url, "a"), OPTIONS) as store:
        Database(store).create_table("t", pa.schema([("id", pa.int64())]), ["id"])
        with monkeypatch.context() as patch:
            patch.setattr(store_copy, "run_tasks", rival)
            with pytest.raises(ConflictError, match="another run copies to b"):
                store_copy.copy_store(store, url, "b", None, 1, "off")
        (name,) = pins
        with monkeypatch.context() as patch:
            made = store.create_pin(CreatePin(name=name))
            patch.setattr(store, "pins", list)
            with pytest.raises(ConflictError, match="another run copies to b"):
                store_copy.copy_store(store, url, "b", None, 1, "off")
        assert store.pins() == [made]


def test_a_store_with_a_new_manifest_at_each_look_at_the_target_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NYALA_CACHE_DIR", str(tmp_path / "cache"))
    url = f"file://{tmp_path / 'bucket'}"
    with Store.open(home_at(url, "a"), OPTIONS) as store:
        ids, table = count(), Database(store).create_table("t", pa.schema([("id", pa.int64())]), ["id"])

        def busy_at(url: str, name: str) -> BucketHome:
            home = home_at(url, name)
            listed = home.bucket.list

            def slow(prefix: str) -> Iterable[tuple[str, int]]:
                if prefix == home.prefix:
                    table.upsert([{"id": next(ids)}])
                    store.maintain("t", "flush")
                return listed(prefix)

            monkeypatch.setattr(home.bucket, "list", slow)
            return home

        monkeypatch.setattr(store_copy, "home_at", busy_at)
        store_copy.copy_store(store, url, "b", None, 1, "off")
    assert verify_bucket(home_at(url, "b")).is_sound
