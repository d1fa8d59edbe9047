"""The sequences that broke Kudu (the pinned ones of fuzz-itest) that need no compaction, and those that broke us.

Each runs once as it is and once with restarts after each step, because replay is where most of them hid.
"""

from collections.abc import Callable

import pytest

from tests.campaigns.model.session import Session
from tests.campaigns.model.shapes import U64
from tests.campaigns.model.subjects import EmbeddedSubject

KEYS_ONLY = ("k",)
VALUE = ("k", "v")
FULL = ("k", "v", "must")


class Restless(Session):
    """A session whose process is killed, or loses its power, after every step."""

    def write(self, op: str, columns: tuple[str, ...], rows: list[tuple], atomic: bool = False) -> None:
        super().write(op, columns, rows, atomic)
        self.restart("kill")
        self.check()

    def maintain(self, op: str) -> None:
        super().maintain(op)
        self.restart("power", len(self.steps))
        self.check()


def insert_delete_insert_with_flushes(session: Session) -> None:
    """1: one key inserted, deleted and inserted again, each in another store."""
    session.write("insert", FULL, [(1, 1, 0), (1, 2, 0)])
    session.maintain("flush")
    session.write("delete", KEYS_ONLY, [(1,), (1,)])
    session.write("insert", FULL, [(1, 3, 0)])
    session.maintain("flush")
    session.write("delete", KEYS_ONLY, [(1,)])
    session.maintain("flush_deltas")
    session.write("insert", FULL, [(1, 4, 0)])
    session.maintain("flush_deltas")


def delete_on_disk_and_insert_anew(session: Session) -> None:
    """2: the delete goes to a delta store, the row comes back beside others that are new."""
    session.write("insert", FULL, [(1, 1, 0), (2, 2, 0)])
    session.maintain("flush")
    session.write("delete", KEYS_ONLY, [(1,)])
    session.write("insert", FULL, [(3, 3, 0), (1, 9, 0)])
    session.maintain("flush")
    session.maintain("flush_deltas")
    session.write("delete", KEYS_ONLY, [(1,), (3,)])
    session.maintain("flush_deltas")
    session.get([(1,), (2,), (3,)])


def update_replayed_twice(session: Session) -> None:
    """3: an update is replayed before and after its flush, and the replay replayed."""
    session.write("insert", FULL, [(1, 0, 0)])
    session.write("update", VALUE, [(1, 1)])
    session.restart("kill")
    session.restart("kill")
    session.maintain("flush")
    session.write("update", VALUE, [(1, 2)])
    session.restart("power", 3)
    session.maintain("flush_deltas")
    session.write("update", VALUE, [(1, None)])
    session.restart("kill")
    session.restart("close")


def upsert_replayed_over_a_flushed_row(session: Session) -> None:
    """4: an upsert in the log meets the row that it made, on disk already."""
    session.write("upsert", FULL, [(1, 1, 0)])
    session.write("upsert", VALUE, [(1, 2)])
    session.maintain("flush")
    session.write("upsert", VALUE, [(1, 3)])
    session.restart("kill")
    session.write("upsert", ("k", "s"), [(1, "x")])
    session.maintain("flush_deltas")
    session.restart("kill")


def upsert_of_the_key_alone(session: Session) -> None:
    """5: on a row in memory, on disk, in replay; and where there is no row, and one cannot be made."""
    session.write("insert", FULL, [(1, 1, 0)])
    session.write("upsert", KEYS_ONLY, [(1,), (2,)])
    session.maintain("flush")
    session.write("upsert", KEYS_ONLY, [(1,), (1,)])
    session.restart("kill")
    session.write("upsert_ignore", KEYS_ONLY, [(1,), (3,)])
    session.maintain("flush_deltas")


def born_and_dead_between_two_moments(session: Session) -> None:
    """6: a row that no flush ever sees alive, in memory and on disk."""
    session.write("insert", FULL, [(1, 1, 0), (2, 2, 0)])
    session.write("delete", KEYS_ONLY, [(1,)])
    session.maintain("flush")
    session.write("insert", FULL, [(1, 3, 0)])
    session.write("delete", KEYS_ONLY, [(1,)])
    session.maintain("flush_deltas")
    session.write("insert", FULL, [(3, 3, 0)])
    session.write("delete", KEYS_ONLY, [(3,)])
    session.maintain("flush")


def one_key_in_many_rowsets(session: Session) -> None:
    """7: overlapping rowsets, read in key order at every moment."""
    for round_ in range(4):
        session.write("insert_ignore", FULL, [(key, round_, 0) for key in (0, 1 + round_, 2 * round_, -1)])
        session.maintain("flush")
        session.write("upsert", VALUE, [(key, 100 + round_) for key in (1 + round_, -1, 0)])
        session.maintain("flush_deltas" if round_ % 2 else "flush")
    for moment in range(len(session.moments)):
        session.scan(FULL, ordered=True, moment=moment)


def many_updates_of_one_row(session: Session) -> None:
    """8: a huge batch (each update repeated), so that one row has more deltas than a store has rows."""
    session.write("insert", FULL, [(1, 0, 0), (2, 0, 0)])
    session.maintain("flush")
    for round_ in range(3):
        session.write("update", VALUE, [(1 + number % 2, 1000 * round_ + number) for number in range(500)])
        session.write("upsert", FULL, [(3, number, 1) for number in range(500)])
        session.maintain("flush_deltas")


SEQUENCES = [
    insert_delete_insert_with_flushes,
    delete_on_disk_and_insert_anew,
    update_replayed_twice,
    upsert_replayed_over_a_flushed_row,
    upsert_of_the_key_alone,
    born_and_dead_between_two_moments,
    one_key_in_many_rowsets,
    many_updates_of_one_row,
]


@pytest.mark.parametrize("kind", [Session, Restless], ids=["once", "restless"])
@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda sequence: sequence.__name__)
def test_pinned(sequence: Callable[[Session], None], kind: type[Session]) -> None:
    session = kind(U64, EmbeddedSubject(U64))
    sequence(session)
    for stop in ("close", "kill"):
        session.check()
        session.restart(stop)
    for moment in range(len(session.moments)):
        session.scan(U64.model.columns, moment=moment)
    session.subject.close()
