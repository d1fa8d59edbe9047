"""The grants that INSERT ... ON CONFLICT DO UPDATE needs: to read what SET reads, and to update what it sets."""

from __future__ import annotations

import pytest

import nyala
from nyala.schemas.errors import PermissionDeniedError
from tests.doubles.grant_statements import ALL
from tests.flight_server.guarded import Guarded

START = "INSERT INTO t (k, a, b) VALUES (1, 5, 'new'), (77, 6, 'new') ON CONFLICT (k) DO UPDATE SET"


@pytest.fixture
def user(guarded: Guarded) -> Guarded:
    """One may add rows, read and update the column ``a``, and neither read nor update ``b``."""
    some = frozenset(["k", "a"])
    guarded.set_grants({"insert": frozenset(ALL), "update": frozenset("a"), "read": some})
    return guarded


def test_a_column_that_keeps_its_value_needs_insert_alone(user: Guarded) -> None:
    with nyala.connect(user.served.url, token=user.user_token) as db:
        assert db.sql(f"{START} a = t.a + excluded.a").changed == 2
    with nyala.connect(user.served.url, token=user.admin_token) as db:
        rows = db.sql("SELECT k, a, b FROM t WHERE k IN (1, 77) ORDER BY k").to_pylist()
    assert rows == [{"k": 1, "a": 6, "b": "x"}, {"k": 77, "a": 6, "b": "new"}]


@pytest.mark.parametrize("sets", ["b = excluded.b", "a = length(t.b)", "a = CASE WHEN t.b = 'x' THEN 1 END"])
def test_what_set_reads_and_writes_is_needed(user: Guarded, sets: str) -> None:
    with nyala.connect(user.served.url, token=user.user_token) as db, pytest.raises(PermissionDeniedError, match="'b'"):
        db.sql(f"{START} {sets}")
    with nyala.connect(user.served.url, token=user.admin_token) as db:
        assert db.sql("SELECT k FROM t WHERE k = 77").to_pylist() == []
