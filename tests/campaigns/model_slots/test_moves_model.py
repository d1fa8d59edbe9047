"""Moves break no promise in any order of events; each mistake that is planted is found."""

import pytest

from tests.campaigns.model_slots.explore import explore
from tests.campaigns.model_slots.moves import MoveBug, Moves, MoveSize
from tests.campaigns.model_slots.sizes import SMALL_MOVES

NOBODY = "no server has the tablet"
PLANTED = {
    MoveBug.STATUS_WITHOUT_LEASE: NOBODY,
    MoveBug.MOVES_WITHOUT_LEASE: NOBODY,
    MoveBug.FREED_TOO_SOON: "a file of the tablet is missing",
    MoveBug.HANDS_OVER_UNPREPARED: NOBODY,
    MoveBug.HANDS_OVER_CHANGED: "an acknowledged write is lost",
    MoveBug.FORGETS_AT_ONCE: NOBODY,
    MoveBug.FENCED_DELETES: "a file of the tablet is missing",
    MoveBug.DISCARDS_UNASKED: NOBODY,
}


@pytest.mark.parametrize("name", SMALL_MOVES)
def test_no_promise_is_broken(name: str) -> None:
    result = explore(Moves(SMALL_MOVES[name]))
    assert not result.violation, result.path
    assert result.is_complete and result.states > 10_000


@pytest.mark.parametrize("bug", MoveBug)
def test_a_planted_mistake_is_found(bug: MoveBug) -> None:
    result = explore(Moves(MoveSize(copies=1), bug))
    assert PLANTED[bug] in result.violation, bug.value


def test_a_former_source_that_answers_loses_the_tablet() -> None:
    assert explore(Moves(MoveSize(copies=1), MoveBug.STATUS_WITHOUT_LEASE)).path == (
        "0 loses its lease",
        "another process takes 0 over",
        "0.1 begins a round of 0",
        "1.0 copies the file of 0",
        "1.0 prepares 0",
        "0.1 hears that 0 is prepared",
        "0.1 hands 0 over",
        "1.0 hears that 0 is unknown",
        "1.0 discards 0",
    )


def test_a_tablet_can_go_there_and_back() -> None:
    """What is explored is not too little: the second move can end, too, under other holders than the first."""
    model = Moves(MoveSize(((0, 1), (1, 0))))
    state, path = model.initial(), []
    wanted = (
        *("0.0 begins a round of 0", "1.0 copies the file of 0", "1.0 prepares 0", "0.0 hears that 0 is prepared"),
        *("0.0 hands 0 over", "1.0 hears that 0 is handed over", "1.0 takes 0 over", "0 loses its lease"),
        *("another process takes 0 over", "0.1 hears that 0 has ended", "0.1 forgets 0", "1 writes"),
        *("1.0 begins a round of 1", "0.1 copies the file of 1", "0.1 prepares 1", "1.0 hears that 1 is prepared"),
        *("1.0 hands 1 over", "0.1 hears that 1 is handed over", "0.1 takes 1 over"),
    )
    for step in wanted:
        possible = dict(model.steps(state))
        assert step in possible, (path, sorted(possible))
        state = possible[step]
        path.append(step)
        assert not model.wrong(state)
    assert state.files[state.manifests[0].file] == state.acked == 1
