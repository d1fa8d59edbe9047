"""Each caller is told of the pins that it may open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nyala
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.store.grants import GrantChange, Privilege
from tests.doubles.grant_statements import ALL, privileges
from tests.flight_server.guarded import Guarded


@pytest.fixture
def pinned(tmp_path: Path) -> Iterator[Guarded]:
    """A server of the tables "t" and "other", whose pins have the same names."""
    made = Guarded(tmp_path, Store.open(tmp_path / "data", StoreOptions(maintenance="off")))
    with nyala.connect(made.served.url, token=made.admin_token) as db:
        for name in ("t", "other"):
            made.make_table(name)
            db.create_pin(f"of-{name}", name)
    yield made
    made.close()


def listed(guarded: Guarded) -> list[str]:
    with nyala.connect(guarded.served.url, token=guarded.user_token) as db:
        return [pin.name for pin in db.pins()]


def test_a_user_opens_and_drops_a_pin_of_one_table_by_name(pinned: Guarded, tmp_path: Path) -> None:
    pinned.set_grants(privileges(read=" ".join(ALL), maintain=""))
    with nyala.connect(pinned.served.url, token=pinned.user_token) as db:
        db.create_pin("mine", "t")
        assert [pin.name for pin in db.pins()] == ["of-t", "mine"]
        assert db.pinned_scan("mine", directory=tmp_path / "data").to_arrow().num_rows == 10
        db.drop_pin("mine")
    assert [pin.name for pin in pinned.store.pins()] == ["of-t", "of-other"]


@pytest.mark.parametrize("has", [{}, {"read": "k a"}, {"maintain": ""}, {"insert": " ".join(ALL)}], ids=str)
def test_no_pin_is_listed_to_users_who_may_not_read_the_whole_table(pinned: Guarded, has: dict[str, str]) -> None:
    pinned.set_grants(privileges(**has))
    assert listed(pinned) == []


def test_readers_of_all_tables_see_all_pins(pinned: Guarded) -> None:
    pinned.store.grant(GrantChange(user="alice", table="*", privileges=[Privilege.READ]))
    assert listed(pinned) == ["of-t", "of-other"]


def test_a_pin_of_a_renamed_table_is_listed_to_its_readers(pinned: Guarded) -> None:
    pinned.set_grants(privileges(read=" ".join(ALL)))
    with nyala.connect(pinned.served.url, token=pinned.admin_token) as db:
        db.table("t").alter().rename("later").apply()
        pinned.make_table("t")
        assert listed(pinned) == ["of-t"]
