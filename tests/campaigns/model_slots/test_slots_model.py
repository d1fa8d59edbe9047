"""The protocol breaks no promise in any order of events; each mistake that is planted is found."""

import pytest

from tests.campaigns.model_slots.bugs import Bug
from tests.campaigns.model_slots.explore import explore
from tests.campaigns.model_slots.protocol import Protocol
from tests.campaigns.model_slots.sizes import SMALL, Size
from tests.dose import by_night

ONE_WRITE = Size(total_writes=1)
PLANTED: dict[Bug, tuple[Size, str]] = {
    Bug.DELETES_CLAIMS: (ONE_WRITE, "a stale read"),
    Bug.SILENT_NEED_NO_FENCE: (ONE_WRITE, "a stale read"),
    Bug.NO_LOOK_ABOVE: (ONE_WRITE, "a stale read"),
    Bug.STALE_LIST: (ONE_WRITE, "a stale read"),
    Bug.ACKS_UNKNOWN: (Size(ticks=2), "an acknowledged write is lost"),
    Bug.SKIPS_SLOT: (Size(ticks=2), "needs is missing"),
    Bug.REFUSAL_IS_MINE: (Size(ticks=2), "a stale read"),
    Bug.REFUSAL_IS_OTHERS: (Size(ticks=2, doubles=1), "its caller was told is not"),
    Bug.FENCED_ACKS: (Size(ticks=2), "an acknowledged write is lost"),
    Bug.FENCED_DELETES: (Size(ticks=2, total_writes=1, deletes_files=True), "needs is missing"),
    Bug.DELETES_TOO_SOON: (Size(ticks=2), "needs is missing"),
    Bug.NO_LEASE: (Size(ticks=2), "a stale read"),
    Bug.CLAIMS_AT_ONCE: (Size(ticks=2), "a stale read"),
    Bug.FORCE_ANSWERS_AT_ONCE: (Size(slots=4, ticks=2, forces=True), "a stale read"),
    Bug.RELEASES_IN_HOLD: (Size(slots=6, ticks=1, forces=True, releases=True, total_writes=1), "a stale read"),
    Bug.LEASE_FROM_ANSWER: (Size(ticks=2, doubles=1, total_writes=1), "a stale read"),
    Bug.CLAIM_WITHOUT_NONCE: (Size(ticks=2, crashes=1, total_writes=1), "a stale read"),
    Bug.READS_AFTER_RELEASE: (Size(ticks=2, releases=True, total_writes=1), "a stale read"),
    Bug.TIMESTAMPS_AFTER_RELEASE: (Size(ticks=1, releases=True, total_writes=1, clocks=True), "has changed"),
    Bug.NAMES_WITHOUT_REIGN: (Size(ticks=2, total_writes=1, deletes_files=True), "needs is missing"),
    Bug.SWEEPS_OWN_REIGN: (Size(slots=4, ticks=2, deletes_files=True), "needs is missing"),
    Bug.SLOT_BEFORE_CHUNK: (Size(slots=4, ticks=2, chunks=True, total_writes=1), "needs is missing"),
    Bug.CHUNKS_BY_PLACE: (Size(slots=5, ticks=2, chunks=True), "an acknowledged write is lost"),
    Bug.SWEEPS_OWN_CHUNKS: (Size(slots=4, ticks=2, chunks=True, total_writes=1), "needs is missing"),
    Bug.SWEEPS_NAMED_CHUNKS: (Size(slots=4, ticks=2, chunks=True, total_writes=1), "needs is missing"),
    Bug.PASSES_A_WRITE: (Size(slots=4, ticks=2, chunks=True, clocks=True, total_writes=1), "has changed"),
    Bug.CEILING_IGNORED: (Size(slots=4, ticks=2, total_writes=1, clocks=True), "has changed"),
    Bug.CEILING_EXCEEDED: (Size(slots=4, ticks=4, total_writes=1, clocks=True), "has changed"),
}
LONG = {
    Bug.CEILING_EXCEEDED,
    Bug.CLAIM_WITHOUT_NONCE,
    Bug.DELETES_CLAIMS,
    Bug.LEASE_FROM_ANSWER,
    Bug.RELEASES_IN_HOLD,
    Bug.SILENT_NEED_NO_FENCE,
    Bug.STALE_LIST,
}
"""They take seconds to find, and are planted by night."""


@pytest.mark.parametrize("name", by_night(SMALL, ["slots", "files", "releases", "forces", "chunks", "clocks"]))
def test_no_promise_is_broken(name: str) -> None:
    result = explore(Protocol(SMALL[name]))
    assert not result.violation, result.path
    assert result.is_complete and result.states > 10_000


@pytest.mark.parametrize("bug", by_night(Bug, set(Bug) - LONG))
def test_a_planted_mistake_is_found(bug: Bug) -> None:
    size, expected = PLANTED[bug]
    result = explore(Protocol(size, bug))
    assert expected in result.violation, bug.value
    assert len(result.path) > 5


def test_the_shortest_way_to_a_lost_write_reads_well() -> None:
    size, _ = PLANTED[Bug.ACKS_UNKNOWN]
    assert explore(Protocol(size, Bug.ACKS_UNKNOWN)).path == (
        "0 sees the end 1",
        "0 plans to claim 2",
        "0 sends a claim of 2",
        "claim of 0 arrives at 2, answered 200",
        "0 holds from 2 on",
        "0 writes",
        "0 acknowledges without knowing",
    )
