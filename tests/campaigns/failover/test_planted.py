"""Each mistake that is planted in the protocol is found by a drill of two machines, which passes without it."""

import pytest

from nyala.schemas.errors import StoreError
from tests.campaigns.failover.drills import DRILLS
from tests.campaigns.failover.planted import PLANTED, plant


@pytest.mark.parametrize("drill", sorted(set(DRILLS.values()), key=str), ids=lambda drill: drill.__name__)
def test_drills_pass(drill) -> None:
    drill()


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(mistake, monkeypatch.setattr)
    with pytest.raises((AssertionError, StoreError)) as found:
        DRILLS[mistake]()
    print(f"{mistake}: {found.value}")
