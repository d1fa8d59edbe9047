"""The memory of the newest commits' operations and users."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from nyala.engine.commit.commit_authors import (
    ANY_TABLE,
    NOTHING,
    USER_LENGTH_MAX,
    Authored,
    CommitAuthors,
    Origin,
    origin_of,
)
from nyala.engine.commit.numbered_writes import NumberedWrites, Ticket, number_of
from nyala.schemas.protocol.request import Request, serving
from nyala.schemas.rows.writer_name import owned

TABLE = 3


def origin(operation: str, name: str, table_id: int = TABLE) -> Origin:
    return operation, name, table_id


def at(found: Authored, *timestamps: int, table_id: int = TABLE) -> list[tuple[str, str] | None]:
    return [each and each[:2] for each in found.at(np.array(timestamps, np.int64), table_id)]


def authored(*commits: tuple[int, str]) -> Authored:
    authors = CommitAuthors(8)
    for timestamp, name in commits:
        authors.add((timestamp, origin("upsert", name)))
    return authors.newest()


def test_the_newest_commits_are_kept() -> None:
    authors = CommitAuthors(4)
    assert at(authors.newest(), 1) == [None]
    for timestamp, name in ((1, "ann"), (2, "bob"), (3, "ann")):
        authors.add((timestamp, origin("insert", name)))
    assert at(authors.newest(), 1, 2, 3, 4) == [("insert", "ann"), ("insert", "bob"), ("insert", "ann"), None]
    authors.add((4, origin("delete", "")))
    before = authors.last
    authors.add((5, origin("insert", "bob")))
    assert authors.last is not before
    assert at(authors.newest(), 0, 1, 2, 3, 4, 5) == [
        None,
        None,
        ("insert", "bob"),
        ("insert", "ann"),
        ("delete", ""),
        ("insert", "bob"),
    ]
    assert authors.newest().timestamps.tolist() == [2, 3, 4, 5]


def test_commits_may_come_in_another_order() -> None:
    authors = CommitAuthors(4)
    authors.add((7, origin("insert", "ann")))
    authors.add((5, origin("insert", "bob")))
    found = authors.newest()
    assert found.timestamps.tolist() == [5, 7]
    assert at(found, 5, 6, 7) == [("insert", "bob"), None, ("insert", "ann")]


def test_a_commit_to_another_table_may_have_the_same_timestamp() -> None:
    """It was made on another server, and came here with a tablet."""
    authors = CommitAuthors(4)
    authors.add((1, origin("upsert", "ann")))
    authors.add((2, origin("transaction", "bob", ANY_TABLE)))
    assert at(authors.newest(), 1, 2, table_id=4) == [None, ("transaction", "bob")]


def test_a_clock_far_ahead_is_no_error() -> None:
    authors = CommitAuthors(4)
    for timestamp in (1, (1 << 63) - 1, 1 << 63, 1 << 64):
        authors.add((timestamp, origin("upsert", "ann")))
    assert authors.newest().timestamps.tolist() == [1, (1 << 63) - 1]


def test_a_long_name_is_cut() -> None:
    with serving(Request("", lambda: None, user="x" * 10_000)):
        assert origin_of("upsert", TABLE) == ("upsert", "x" * USER_LENGTH_MAX, TABLE)


def test_what_was_kept_before_comes_first() -> None:
    earlier, later = authored((1, "ann"), (2, "bob"), (3, "cleo")), authored((4, "ann"), (5, "dora"))
    both = earlier.followed_by(later, 4)
    assert at(both, 1, 2, 3, 4, 5) == [None, *(("upsert", name) for name in ("bob", "cleo", "ann", "dora"))]
    assert sorted(both.origins) == [("upsert", name, TABLE) for name in ("ann", "bob", "cleo", "dora")]
    assert sorted(earlier.followed_by(later, 2).origins) == [("upsert", "ann", TABLE), ("upsert", "dora", TABLE)]
    assert len(NOTHING.followed_by(NOTHING, 4).timestamps) == 0
    assert at(NOTHING.followed_by(earlier, 4), 2) == [("upsert", "bob")]
    assert at(earlier.followed_by(NOTHING, 4), 2) == [("upsert", "bob")]
    assert at(earlier.up_to(2), 1, 2, 3) == [("upsert", "ann"), ("upsert", "bob"), None]


def test_threads_share_it() -> None:
    authors, threads = CommitAuthors(1 << 14), 8

    def add(first: int) -> None:
        for timestamp in range(first, 8_000, threads):
            authors.add((timestamp, origin("upsert", str(timestamp % 100))))
            if timestamp % 64 == first:
                authors.newest()

    workers = [threading.Thread(target=add, args=(first,)) for first in range(threads)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    found = authors.newest()
    assert found.timestamps.tolist() == list(range(8_000))
    assert [each[1] for each in at(found, *range(8_000)) if each] == [str(n % 100) for n in range(8_000)]


@pytest.mark.parametrize("request_user", ["", "cluster"])
def test_whose_a_commit_is(request_user: str) -> None:
    """A server in front names its user in the writer; the user of the request goes before."""
    ticket = Ticket(NumberedWrites(), number_of(1, owned("bob@x/y%", "w"), 0))
    nobody = Ticket(NumberedWrites(), number_of(1, "w", 0))
    with serving(Request("", lambda: None, user=request_user)):
        assert origin_of("upsert", TABLE, ticket) == ("upsert", request_user or "bob@x/y%", TABLE)
        assert origin_of("upsert", TABLE, nobody) == ("upsert", request_user, TABLE)
        assert origin_of("upsert", TABLE) == ("upsert", request_user, TABLE)
    assert origin_of("upsert", TABLE, Ticket(NumberedWrites(), number_of(1, owned("b" * 999, "w"), 0))) == (
        "upsert",
        "",
        TABLE,
    )
