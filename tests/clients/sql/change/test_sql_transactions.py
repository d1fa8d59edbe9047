"""BEGIN, COMMIT and ROLLBACK: one snapshot, one commit, and what is refused inside."""

from __future__ import annotations

import pytest

from nyala.clients.sql.change.transaction import SqlTransaction
from nyala.schemas.errors import ConflictError, InvalidArgumentError, StoreError

from .small_reader import SmallSql, parse


def run(transaction: SqlTransaction, text: str) -> int:
    return transaction.run(parse(text)[0]).count


def test_all_statements_are_one_commit(homes: SmallSql) -> None:
    transaction = homes.begin()
    before = str((homes.rows("homes"), homes.rows("offers")))  # NaN is not itself
    assert run(transaction, "INSERT INTO homes (id) VALUES (5), (5), (1) ON CONFLICT DO NOTHING") == 1
    assert run(transaction, "INSERT INTO homes (id) VALUES (4)") == 1
    assert run(transaction, "UPDATE offers SET n = n + 1 WHERE n > 20") == 2
    assert str((homes.rows("homes"), homes.rows("offers"))) == before
    done = transaction.commit()
    assert [row["id"] for row in homes.rows("homes")] == [1, 2, 3, 4, 5]
    assert [row["n"] for row in homes.rows("offers")] == [10, 20, 22, 91]
    assert homes.store.last_change("homes") == homes.store.last_change("offers") == done.timestamp


def test_reads_are_at_the_snapshot_of_begin(homes: SmallSql) -> None:
    transaction = homes.begin()
    homes.run("DELETE FROM offers")
    assert run(transaction, "DELETE FROM homes USING offers WHERE offers.home = homes.id") == 2
    transaction.commit()
    assert [row["id"] for row in homes.rows("homes")] == [3]


def test_a_row_that_changed_since_begin_refuses_the_commit(homes: SmallSql) -> None:
    transaction = homes.begin()
    run(transaction, "UPDATE homes SET n = 50 WHERE id = 1")
    run(transaction, "INSERT INTO offers VALUES (9, 9, 9)")
    homes.run("UPDATE homes SET n = 60 WHERE id = 1")
    with pytest.raises(ConflictError, match="id=1"):
        transaction.commit()
    assert homes.rows("homes")[0]["n"] == 60 and len(homes.rows("offers")) == 4


def test_rollback_leaves_nothing(homes: SmallSql) -> None:
    with homes.begin() as transaction:
        run(transaction, "DELETE FROM homes")
    transaction.rollback()
    assert len(homes.rows("homes")) == 3
    with pytest.raises(InvalidArgumentError, match="is over"):
        transaction.commit()


def test_a_transaction_without_changes_commits_nothing(homes: SmallSql) -> None:
    transaction = homes.begin()
    assert run(transaction, "UPDATE homes SET n = 1 WHERE FALSE") == 0
    assert transaction.commit().timestamp is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("UPDATE homes SET n = 1", "has written table 'homes'"),
        ("INSERT INTO offers SELECT id + 50, id, n FROM homes", "has written table 'homes'"),
        ("DELETE FROM offers WHERE home IN (SELECT id FROM homes)", "has written table 'homes'"),
        ("INSERT INTO homes (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET n = 1 + homes.n", "written table 'homes'"),
        ("MERGE INTO offers USING homes ON homes.id = offers.id WHEN MATCHED THEN DELETE", "has written table 'homes'"),
        ("TRUNCATE offers", "TRUNCATE cannot be part"),
        ("CREATE TABLE x (id int PRIMARY KEY)", "changes rows only"),
        ("DROP TABLE offers", "changes rows only"),
        ("ALTER TABLE offers ADD COLUMN x int", "changes rows only"),
        ("INSERT INTO offers VALUES (1, NULL, 3000000000)", "'n' is int32"),
    ],
)  # fmt: skip
def test_a_refused_statement_ends_the_transaction(homes: SmallSql, text: str, why: str) -> None:
    transaction = homes.begin()
    run(transaction, "INSERT INTO homes (id) VALUES (4)")
    with pytest.raises(StoreError, match=why):
        run(transaction, text)
    with pytest.raises(InvalidArgumentError, match="has failed: roll back"):
        run(transaction, "INSERT INTO homes (id) VALUES (5)")
    with pytest.raises(InvalidArgumentError, match="has failed: roll back"):
        transaction.commit()
    transaction.rollback()
    assert len(homes.rows("homes")) == 3


def test_queries_may_read_what_was_not_written(homes: SmallSql) -> None:
    transaction = homes.begin()
    run(transaction, "INSERT INTO homes (id) VALUES (4)")
    transaction.check_reads(parse("SELECT * FROM offers")[0])
    with pytest.raises(InvalidArgumentError, match="has written table 'homes'"):
        transaction.check_reads(parse("SELECT * FROM offers WHERE EXISTS (SELECT 1 FROM homes)")[0])


def test_rows_may_be_inserted_again_and_again(homes: SmallSql) -> None:
    transaction = homes.begin()
    run(transaction, "INSERT INTO homes (id) VALUES (4)")
    run(transaction, "INSERT INTO homes (id, n) VALUES (1, 3), (5, 3) ON CONFLICT (id) DO UPDATE SET n = excluded.n")
    run(transaction, "INSERT INTO homes (id) VALUES (6)")
    transaction.commit()
    assert [row["n"] for row in homes.rows("homes")] == [3, 2, 3, 7, 3, 7]
