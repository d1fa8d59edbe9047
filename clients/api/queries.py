"""SQL over a database: the engine, imported only when a query is asked for."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.service import StoreService

if TYPE_CHECKING:
    from ..sql.engine import SqlEngine


def sql_engine(store: StoreService) -> SqlEngine:
    """Return what runs the queries over a store. Raises InvalidArgumentError if a library is missing."""
    missing = [library for library in ("datafusion", "sqlglot") if find_spec(library) is None]
    if missing:
        raise InvalidArgumentError(
            f"Database.sql needs {' and '.join(missing)}: pip install 'nyala[sql]'; Table.scan does not need them"
        )
    from ..sql.engine import SqlEngine

    return SqlEngine(store)
