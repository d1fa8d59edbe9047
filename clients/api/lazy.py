"""Lazy reads: tables as sources of polars, DuckDB, DataFusion and pyarrow, which choose columns and filters."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...schemas.cells.timestamp import Moment, read_moment
from ...schemas.errors import InvalidArgumentError
from .connect import connect
from .database import Database
from .table import Table

if TYPE_CHECKING:
    import polars as pl


def scan_polars(
    source: Table | str, table: str | None = None, *, as_of: Moment | None = None, **connection: Any
) -> pl.LazyFrame:
    """Return a polars LazyFrame over a table. Nothing is read until it is collected.

    ``source`` is a ``Table``, or the URI of a server; then ``table`` is the table's name, and ``connection`` has
    further arguments of ``nyala.connect``. The store reads only the columns that a query needs, and evaluates its
    predicates as far as it can. All reads see one snapshot, that of this call or ``as_of``.

    Raises:
        InvalidArgumentError: polars is not installed, or the arguments do not go together.
        NotFoundError: there is no such table.
    """
    need("polars", "scan_polars", "pip install polars", "Table.scan")
    if isinstance(source, str):
        if table is None:
            raise InvalidArgumentError(f"scan_polars({source!r}) needs the name of a table: scan_polars(uri, 'homes')")
        scanned = connect(source, **connection).table(table)
    elif table is not None or connection:
        raise InvalidArgumentError("scan_polars takes a Table, or the URI of a server and the name of a table")
    else:
        scanned = source
    from ..sql.source.polars_source import lazy_frame

    return lazy_frame(scanned.dataset(as_of))


def datafusion_catalog(database: Database, as_of: Moment | None = None) -> Any:
    """Return the tables of a database as a catalog of DataFusion, for ``SessionContext.register_catalog_provider``.

    Its only schema is ``public``: a query names ``nyala.public.homes`` if the catalog is registered as ``nyala``. Each
    query sees the tables that exist, as of the time when it is planned, or ``as_of``. Text columns are ``string_view``.

    Raises:
        InvalidArgumentError: DataFusion is not installed.
    """
    need("datafusion", "datafusion_catalog", "pip install 'nyala[sql]'", "Table.dataset")
    from ..sql.catalog import TablesCatalog, TablesSchema

    moment = None if as_of is None else read_moment(as_of)
    return TablesCatalog(
        TablesSchema(database.list_tables, lambda name: database.table(name).dataset(moment, views=True))
    )


def need(library: str, call: str, command: str, instead: str) -> None:
    """Raise InvalidArgumentError if ``library`` is not installed, which ``command`` installs."""
    if find_spec(library) is None:
        raise InvalidArgumentError(f"{call} needs {library}: {command}; {instead} does not need it")
