"""Many writers of one row: no change is lost, and nobody gives up."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from nyala.clients.sql.change.conflicts import TRIES, Turns, tried
from nyala.schemas.errors import ConflictError
from tests.dose import dose

from .small_reader import SmallSql

WRITERS = 8
EACH = dose(20, 1_000)
RAISES = {
    "at once": "UPDATE c SET n = n + 1 WHERE id = 1",
    "read first": "UPDATE c SET n = (SELECT n FROM c WHERE id = 1) + 1 WHERE id = 1",
    "on conflict": "INSERT INTO c VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = c.n + excluded.n",
    "on conflict, read": "INSERT INTO c VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = c.n + excluded.n WHERE TRUE",
    "merge": "MERGE INTO c USING (SELECT 1 AS id) AS s ON c.id = s.id WHEN MATCHED THEN UPDATE SET n = c.n + 1 "
    "WHEN NOT MATCHED THEN INSERT VALUES (1, 1)",
}


def at_once(work: Callable[[], None]) -> list[Exception]:
    """Run the work in all writers at once; return what they raised."""
    failures: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


@pytest.mark.parametrize("way", RAISES)
def test_a_counter_counts_all_that_raise_it(sql: SmallSql, way: str) -> None:
    sql.run("CREATE TABLE c (id int PRIMARY KEY, n bigint)")
    if way in ("at once", "read first"):
        sql.run("INSERT INTO c VALUES (1, 0)")

    def work() -> None:
        for _ in range(EACH):
            assert sql.run(RAISES[way]).count == 1

    assert at_once(work) == []
    assert sql.rows("c") == [{"id": 1, "n": WRITERS * EACH}]


def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    turns, came = Turns(), []
    with turns.turn("t"):
        assert turns.is_awaited("t")
        waiting = []
        for number in range(5):
            asked = threading.Event()

            def work(number: int = number, asked: threading.Event = asked) -> None:
                asked.set()
                with turns.turn("t"):
                    came.append(number)

            waiting.append(threading.Thread(target=work))
            waiting[-1].start()
            asked.wait()
            while len(turns._queues["t"]) < number + 2:
                pass
        assert came == []
    for thread in waiting:
        thread.join()
    assert came == [0, 1, 2, 3, 4]
    assert not turns.is_awaited("t")


def test_after_ten_tries_the_error_names_the_key(sql: SmallSql) -> None:
    sql.run("CREATE TABLE c (id int PRIMARY KEY, n bigint); INSERT INTO c VALUES (7, 0)")
    read, tries = sql.changes._read, []

    def interrupted(*arguments):  # type: ignore[no-untyped-def]
        found = read(*arguments)
        tries.append(len(tries))
        sql.run("UPDATE c SET n = n + 100 WHERE id = 7")
        return found

    sql.changes._read = interrupted
    with pytest.raises(ConflictError, match=r"id=7.*try again later"):
        sql.run("UPDATE c SET n = (SELECT n FROM c WHERE id = 7) + 1")
    assert len(tries) == TRIES
    assert sql.rows("c") == [{"id": 7, "n": 100 * TRIES}]


def test_a_key_that_appears_meanwhile_is_read_again(sql: SmallSql) -> None:
    sql.run("CREATE TABLE c (id int PRIMARY KEY, n bigint)")
    read = sql.changes._read

    def interrupted(*arguments):  # type: ignore[no-untyped-def]
        found = read(*arguments)
        sql.changes._read = read
        sql.run("INSERT INTO c VALUES (1, 100)")
        return found

    sql.changes._read = interrupted
    text = "INSERT INTO c VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET n = c.n + excluded.n WHERE c.n > 0"
    assert sql.run(text).count == 1
    assert sql.rows("c") == [{"id": 1, "n": 105}]


def test_a_try_that_is_refused_for_another_reason_is_the_last(sql: SmallSql) -> None:
    sql.run("CREATE TABLE c (id int PRIMARY KEY)")
    calls = []

    def attempt() -> None:
        calls.append(1)
        raise ValueError

    with pytest.raises(ValueError):
        tried(Turns(), sql.store.describe_table("c"), attempt)
    assert calls == [1]
