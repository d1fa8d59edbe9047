"""What a user keeps from others, by requests of two users over Flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow.flight as fl
import pytest

from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from tests.doubles.grant_statements import ALL, Caller
from tests.flight_server.guarded import Guarded


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A store with few of everything."""
    options = StoreOptions(maintenance="off", unfinished_max=4, scan_leases_count=4)
    made = Guarded(tmp_path_factory.mktemp("shares"), Store.open(MemoryFileSystem(), options))
    made.make_table()
    made.set_grants({"read": frozenset(ALL), "insert": frozenset(ALL), "update": frozenset(ALL)})
    yield made
    made.close()


def stage(caller: Caller, number: int) -> None:
    caller.put("upsert", "k a", stage={"transaction": f"{caller.transaction}{number}", "part": "p"})


BEGIN: dict[str, Callable[[Caller, int], object]] = {
    "pins": lambda caller, _: caller.action("pin_snapshot", table="t"),
    "imports": lambda caller, _: caller.action("import_begin", table="t"),
    "transactions": stage,
}


@pytest.mark.parametrize("kind", BEGIN)
def test_one_user_leaves_half_to_another(small: Guarded, kind: str) -> None:
    begin = BEGIN[kind]
    for number in range(2):
        begin(small.user, number)
    with pytest.raises(
        fl.FlightUnavailableError, match=rf"unfinished {kind} of the user 'alice' \(2; 2 of unfinished_max stay free"
    ):
        begin(small.user, 2)
    begin(small.admin, 3)
