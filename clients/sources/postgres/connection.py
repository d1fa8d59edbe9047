"""Connections to PostgreSQL, and its errors as those of the store. No message has the password."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import adbc_driver_postgresql.dbapi as adbc
import psycopg2
import psycopg2.extensions
import psycopg2.extras

from ....schemas.errors import (
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    StoreError,
    UnauthenticatedError,
    UnavailableError,
)

Connection = TypeVar("Connection")

_SETTINGS = (
    "-c timezone=UTC -c datestyle=ISO,YMD -c intervalstyle=postgres -c bytea_output=hex -c extra_float_digits=1 "
    "-c statement_timeout=0 -c idle_in_transaction_session_timeout=0"
)
"""The forms of text that the decoder reads."""
_LOST_CHANGES = (
    "wal segment",
    "has been invalidated",
    "can no longer",
    "already been removed",
    "max_slot_wal_keep_size",
)
"""Words of PostgreSQL's messages that a slot's changes are gone."""
_OF_SERVER = re.compile(r"^.*\b(?=(?:ERROR|FATAL):)|^[A-Z_]+: (?:\[libpq\] )?")
"""What ADBC writes before the words of the server, or of libpq."""
OLDEST = 140_000
"""The first version that reads ranges of blocks without a scan of the whole table."""


class Dsn:
    """What a user gives to reach a database of PostgreSQL: a URL, or words as libpq takes them."""

    def __init__(self, text: str) -> None:
        """Raises InvalidArgumentError: libpq cannot read it."""
        try:
            self._words = dict(psycopg2.extensions.parse_dsn(text))
        except psycopg2.ProgrammingError:  # its message shows the whole text
            raise InvalidArgumentError(
                "the address of the database is not valid: give postgresql://user@host:port/database, with special "
                "characters such as @ or / in the password written as %40 or %2F"
            ) from None
        self._secrets = [self._words[word] for word in ("password", "sslpassword") if self._words.get(word)]

    @property
    def database(self) -> str:
        """The name of the database, as far as the address has it."""
        return self._words.get("dbname") or self._words.get("user") or "postgres"

    def connect(self) -> Any:
        """Return a connection for statements, in autocommit."""
        connection = self._connected(psycopg2.connect)
        connection.autocommit = True
        return connection

    def connect_for_replication(self) -> Any:
        """Return a connection that speaks the protocol of replication."""
        factory = psycopg2.extras.LogicalReplicationConnection
        return self._connected(lambda **words: psycopg2.connect(connection_factory=factory, **words))

    def connect_for_rows(self) -> Any:
        """Return a connection of ADBC, in autocommit, whose queries return Arrow."""
        return self._connected(lambda **words: adbc.connect(psycopg2.extensions.make_dsn(**words), autocommit=True))

    def _connected(self, connect: Callable[..., Connection]) -> Connection:
        own = {
            "client_encoding": "UTF8",
            "application_name": "nyala mirror",
            "connect_timeout": "10",
            "keepalives_idle": "30",
            "keepalives_interval": "10",
        }
        options = " ".join(filter(None, [self._words.get("options"), _SETTINGS]))
        with self.errors():
            return connect(**(own | self._words | {"options": options}))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the errors of psycopg2 and of ADBC as those of the store, without the password."""
        try:
            yield
        except (psycopg2.Error, adbc.Error) as error:
            raise self.translated(error) from None

    def translated(self, error: psycopg2.Error | adbc.Error) -> StoreError:
        """Return an error of psycopg2 or ADBC as one of the store, without the password."""
        text = " ".join(str(error).split())
        if isinstance(error, adbc.Error):
            text = _OF_SERVER.sub("", text.partition(" Query was:")[0].partition(". SQLSTATE:")[0])
        for secret in self._secrets:
            text = text.replace(secret, "***")
        code = (error.sqlstate if isinstance(error, adbc.Error) else error.pgcode) or ""
        text = f"PostgreSQL: {text.removeprefix('ERROR: ').removeprefix('FATAL: ').strip()}"
        if any(words in text.lower() for words in _LOST_CHANGES):
            return lost_changes(text)
        if code == "42501":
            return PermissionDeniedError(text)
        if code.startswith("28") or "authentication failed" in text or "no password supplied" in text:
            return UnauthenticatedError(text)
        if code in ("3D000", "42P01", "42704"):
            return NotFoundError(text)
        if isinstance(error, psycopg2.InterfaceError | psycopg2.DatabaseError | adbc.Error) and (
            not code or code[:2] in ("08", "53", "55", "57", "40")
        ):
            return UnavailableError(text)
        return InvalidArgumentError(text)


def lost_changes(why: str) -> ConflictError:
    """Return the error of changes that PostgreSQL no longer has."""
    return ConflictError(
        f"changes since the last commit are lost ({why}); the tables are as of that commit: copy them again with "
        "--again"
    )
