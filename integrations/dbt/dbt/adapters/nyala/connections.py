"""Connections to a server, by Flight SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
from adbc_driver_flightsql import DatabaseOptions
from adbc_driver_manager import dbapi
from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState, Credentials
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.exceptions import FailedToConnectError
from dbt.adapters.sql import SQLConnectionManager
from dbt_common.exceptions import DbtConfigError, DbtDatabaseError, DbtRuntimeError

_LOGGER = AdapterLogger("Nyala")
_CATALOG, _SCHEMA = "nyala", "public"
_COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_END_OF_TRANSACTION = {"begin", "commit"}
_DRIVER = re.compile(
    r"^\w+: \[FlightSQL\] |\s*\((?:Invalid|Unknown|Not|Unauth|Permission|Already|Unavail|Aborted)\w*;.*|\. Detail: .*"
)


@dataclass
class NyalaCredentials(Credentials):
    """What a profile says of a server."""

    database: str = _CATALOG
    schema: str = _SCHEMA
    url: str = "grpc://localhost:8815"
    """Where it listens; ``grpc+tls://`` for TLS."""
    token: str | None = None
    """Of the user; None: the server asks for none."""
    ca_file: str | None = None
    """The certificate, in a file, of who has signed that of the server."""

    def __post_init__(self) -> None:
        for name, value, only in (("database", self.database, _CATALOG), ("schema", self.schema, _SCHEMA)):
            if value != only:
                raise DbtConfigError(f"{name} is {value!r}, and a server has no other than {only!r}: leave it out")

    @property
    def type(self) -> str:
        """The name of the adapter."""
        return "nyala"

    @property
    def unique_field(self) -> str:
        """What tells a server from others."""
        return self.url

    def _connection_keys(self) -> tuple[str, ...]:
        return ("url", "ca_file", "database", "schema")


class NyalaConnectionManager(SQLConnectionManager):
    """Opens connections and runs statements. Each statement is a transaction of its own: those that change tables
    cannot be within a longer one."""

    TYPE = "nyala"

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        """Connect, and ask the server whether it answers. Raises FailedToConnectError."""
        if connection.state == ConnectionState.OPEN:
            return connection
        credentials = connection.credentials
        try:
            connection.handle = flight_sql.connect(credentials.url, db_kwargs=_options(credentials), autocommit=True)
            with connection.handle.cursor() as cursor:
                cursor.execute("SELECT 1")
                cursor.fetchall()
        except (dbapi.Error, OSError) as error:
            connection.state = ConnectionState.FAIL
            raise FailedToConnectError(f"no connection to {credentials.url}: {plain(error)}") from None
        connection.state = ConnectionState.OPEN
        return connection

    def cancel(self, connection: Connection) -> None:
        """Cancel the statement that a connection runs."""
        connection.handle.adbc_cancel()

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        """Turn errors of the driver into those of dbt."""
        try:
            yield
        except dbapi.Error as error:
            raise DbtDatabaseError(plain(error)) from None
        except DbtRuntimeError:
            raise
        except Exception as error:
            raise DbtRuntimeError(str(error)) from error

    @classmethod
    def get_response(cls, cursor: Any) -> AdapterResponse:
        """Return how many rows a statement has changed."""
        rows = max(cursor.rowcount, 0)
        return AdapterResponse(_message=f"OK {rows}" if rows else "OK", rows_affected=rows)

    def add_query(self, sql: str, *args: Any, **kwargs: Any) -> tuple[Connection, Any]:
        """Run a statement. A BEGIN or a COMMIT of dbt around hooks means nothing: see the class."""
        if _COMMENT.sub("", sql).strip(" \t\r\n;").lower() in _END_OF_TRANSACTION:
            sql = "SELECT 1"
        return super().add_query(sql, *args, **kwargs)

    def begin(self) -> Connection:
        """Note that dbt has begun a transaction."""
        connection = self.get_thread_connection()
        connection.transaction_open = True
        return connection

    def commit(self) -> Connection:
        """Note that dbt has ended a transaction."""
        connection = self.get_thread_connection()
        connection.transaction_open = False
        return connection

    @classmethod
    def _rollback_handle(cls, connection: Connection) -> None:
        """There is nothing to roll back."""

    @classmethod
    def data_type_code_to_name(cls, type_code: Any) -> str:
        """Return the name in SQL of a type of Arrow."""
        return sql_type(type_code)


def sql_type(kind: Any) -> str:
    """Return the name in SQL of a type of Arrow."""
    text = str(kind)
    if text.startswith("decimal"):
        return f"numeric({kind.precision},{kind.scale})"
    if text.startswith("timestamp"):
        return "timestamptz" if kind.tz else "timestamp"
    return _TYPES.get(text, text)


_TYPES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "large_string": "text",
    "binary": "bytea",
    "date32[day]": "date",
}


def plain(error: BaseException) -> str:
    """Return the message of an error, without what the driver writes around it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return _DRIVER.sub("", lines[0]).strip()


def _options(credentials: NyalaCredentials) -> dict[str, str]:
    options = {}
    if credentials.token:
        options[DatabaseOptions.AUTHORIZATION_HEADER.value] = f"Bearer {credentials.token}"
    if credentials.ca_file:
        with open(credentials.ca_file, encoding="ascii") as file:
            options[DatabaseOptions.TLS_ROOT_CERTS.value] = file.read()
    return options
