"""Tables as datasets, which engines read lazily."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...schemas.cells.timestamp import Moment, read_moment
from ...schemas.protocol.service import StoreService
from ...schemas.store.description import TableDescription

if TYPE_CHECKING:
    from ..sql.source.dataset import NyalaDataset


class LazyTable:
    """The part of a ``Table`` that engines read by themselves."""

    _store: StoreService
    _description: TableDescription

    def dataset(self, as_of: Moment | None = None, *, views: bool = False) -> NyalaDataset:
        """Return the table as a ``pyarrow.dataset.Dataset``, for DuckDB, DataFusion, polars and pyarrow.

        Engines push columns and filters into it, and the store evaluates them. All reads see one snapshot, that of this
        call or ``as_of``. Filters have SQL's logic: see docs/lazy.md. With ``views``, text and bytes are
        ``string_view`` and ``binary_view``, which DataFusion groups by faster.

        Raises:
            InvalidArgumentError: ``as_of`` has the wrong form.
        """
        from ..sql.source.dataset import NyalaDataset  # imports pyarrow.dataset, which is expensive

        moment = self._store.now() if as_of is None else read_moment(as_of)
        return NyalaDataset(self._store, self._description, moment, views=views)
