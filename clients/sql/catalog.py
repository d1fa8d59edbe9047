"""The tables of a database as a catalog of DataFusion, which looks them up as queries name them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from datafusion.catalog import CatalogProvider, SchemaProvider, Table

from ...schemas.errors import NotFoundError
from .source.dataset import NyalaDataset

SCHEMA_NAME = "public"


class TablesSchema(SchemaProvider):
    """The only schema of a catalog of DataFusion. ``names`` returns the names of all tables, ``dataset`` one of them;
    it raises ``NotFoundError`` for others."""

    def __init__(self, names: Callable[[], Iterable[str]], dataset: Callable[[str], NyalaDataset]) -> None:
        self._names = names
        self._dataset = dataset

    def table_names(self) -> set[str]:
        """Return the names of all tables."""
        return set(self._names())

    def table(self, name: str) -> Table | None:
        """Return a table as of now, or as of the catalog's snapshot; None if there is none of this name."""
        try:
            return Table(self._dataset(name))
        except NotFoundError:
            return None

    def table_exist(self, name: str) -> bool:
        """Return whether there is a table of this name."""
        return name in self.table_names()


class TablesCatalog(CatalogProvider):
    """A catalog of DataFusion with one schema, ``public``."""

    def __init__(self, tables: TablesSchema) -> None:
        self._tables = tables

    def schema_names(self) -> set[str]:
        """Return the name of the schema."""
        return {SCHEMA_NAME}

    def schema(self, name: str) -> TablesSchema | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the schema, None for another name."""
        return self._tables if name == SCHEMA_NAME else None
