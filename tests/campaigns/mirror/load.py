"""The load on PostgreSQL: transactions over two tables that keep a sum, and rows of every size that come and go."""

from __future__ import annotations

import threading
import time
from random import Random

import psycopg2

from tests.clients.sources.postgres_server import PostgresServer

TABLES = ("debit", "credit", "notes", "journal", "beat")
ACCOUNTS = 2_000
NOTES = 3_000
_ALONE = "SELECT pg_advisory_xact_lock(1)"
"""The statements of a transaction about accounts see the same rows."""
_SCHEMA = (
    "CREATE TABLE debit (id int PRIMARY KEY, amount bigint, note text)",
    "CREATE TABLE credit (id int, part int, amount bigint, PRIMARY KEY (part, id))",
    "CREATE TABLE notes (id int PRIMARY KEY, number int, price numeric(12,2), at timestamptz, long text)",
    "ALTER TABLE notes ALTER COLUMN long SET STORAGE EXTERNAL",
    "CREATE TABLE journal (id bigserial PRIMARY KEY, changes int)",
    "CREATE TABLE beat (id int PRIMARY KEY, at timestamptz)",
    "INSERT INTO beat VALUES (1, clock_timestamp())",
    f"INSERT INTO debit SELECT i, i, 'n' || i FROM generate_series(1, {ACCOUNTS}) i",
    f"INSERT INTO credit SELECT i, i % 7, -i FROM generate_series(1, {ACCOUNTS}) i",
    f"INSERT INTO notes SELECT i, i, i, now(), repeat('x', i) FROM generate_series(1, {NOTES}) i",
)


def create(server: PostgresServer) -> None:
    """Create the tables; the amounts of both tables of accounts add up to zero, now and after each transaction."""
    server.execute(*_SCHEMA)


class Load(threading.Thread):
    """Changes the tables until it is stopped; waits while the server is down. A transaction counts if its commit was
    answered."""

    def __init__(self, server: PostgresServer, random: Random, pause_seconds: float = 0.0) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._random = random
        self._pause_seconds = pause_seconds
        self._ended = threading.Event()
        self.changes = 0
        self.transactions = 0
        self.failure: BaseException | None = None

    def stop(self) -> None:
        """End after the current transaction; raise the error that ended it before."""
        self._ended.set()
        self.join(60)
        if self.failure:
            raise self.failure

    def run(self) -> None:
        """Work until ``stop``."""
        try:
            while not self._ended.is_set():
                try:
                    with self._server.connection() as connection, connection.cursor() as cursor:
                        while not self._ended.is_set():
                            self._transaction(cursor)
                            self._ended.wait(self._pause_seconds)
                except (psycopg2.OperationalError, psycopg2.InterfaceError):  # it was killed
                    time.sleep(0.1)
        except BaseException as error:
            self.failure = error

    def _transaction(self, cursor: object) -> None:
        statements, changes = self._random.choice([self._transfer, self._accounts, self._notes, self._notes])()
        # Changed rows are changed again, which hides a lost change; a row that stays does not.
        statements = [*statements, f"INSERT INTO journal (changes) VALUES ({changes})"]
        cursor.execute(f"BEGIN;{';'.join(statements)};COMMIT")  # pyright: ignore[reportAttributeAccessIssue]
        self.changes += changes + 1
        self.transactions += 1

    def _transfer(self) -> tuple[list[str], int]:
        """Move amounts between both tables."""
        first, by = self._random.randint(1, ACCOUNTS), self._random.randint(1, 99)
        many = self._random.choice([1, 1, 5, 60])
        ids = f"id BETWEEN {first} AND {first + many - 1}"
        return [
            _ALONE,
            f"UPDATE debit SET amount = amount - {by} WHERE {ids}",
            f"UPDATE credit SET amount = amount + {by} * (SELECT count(*) FROM debit WHERE {ids}) WHERE (part, id) = "
            "(SELECT part, id FROM credit ORDER BY part, id LIMIT 1)",
            "UPDATE beat SET at = clock_timestamp()",
        ], many + 2

    def _accounts(self) -> tuple[list[str], int]:
        """Add a pair of rows, give one another key, or take the amounts of a pair away."""
        number = self._random.randint(1, 2 * ACCOUNTS)
        if self._random.random() < 0.5:
            return [
                _ALONE,
                f"UPDATE credit SET amount = amount + coalesce((SELECT amount FROM debit WHERE id = {number}), 0) "
                "WHERE (part, id) = (SELECT part, id FROM credit ORDER BY part, id LIMIT 1)",
                f"DELETE FROM debit WHERE id = {number}",
            ], 2
        return [
            _ALONE,
            f"INSERT INTO debit VALUES ({number}, 0, 'again') ON CONFLICT DO NOTHING",
            f"UPDATE credit SET part = (part + 1) % 7 WHERE id = {number % ACCOUNTS}",
        ], 2

    def _notes(self) -> tuple[list[str], int]:
        """Change rows beside large values, under the same and other keys."""
        number = self._random.randint(1, NOTES)
        return self._random.choice(
            [
                ([f"UPDATE notes SET number = number + 1, at = now() WHERE id BETWEEN {number} AND {number + 19}"], 20),
                ([f"UPDATE notes SET long = repeat('{number}', {number}) WHERE id = {number}"], 1),
                ([f"DELETE FROM notes WHERE id = -{number}", f"UPDATE notes SET id = -id WHERE id = {number}"], 2),
                (
                    [
                        f"DELETE FROM notes WHERE id = {number}",
                        f"INSERT INTO notes VALUES ({number}, 0, 1.5, now(), NULL) ON CONFLICT DO NOTHING",
                    ],
                    2,
                ),
                ([f"INSERT INTO notes VALUES ({number}, 0) ON CONFLICT (id) DO UPDATE SET price = {number}"], 1),
            ]
        )
