"""SessionRow: writes of one row that comes as JSON, which costs both sides less than a record batch."""

from __future__ import annotations

from typing import Any, cast

from pydantic_core import ValidationError

from ...clients.convert.few_rows import few_rows
from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.command import read_json
from ...schemas.protocol.service import PendingResult, RowPlanner, StoreService
from ...schemas.protocol.session import SessionDetails, cells_from_json
from ...schemas.rows.write import WriteCommand, WriteResult


def details_of(line: bytes) -> SessionDetails:
    """Return the second line of a request. Raises InvalidArgumentError, which says what is wrong with it."""
    try:
        return SessionDetails.__pydantic_validator__.validate_json(line)
    except ValidationError:
        return read_json(SessionDetails, line, "the second line")


class SessionRow:
    """Writes rows that come by a session as JSON, with the same columns and by the same command. Thread safe."""

    def __init__(self, store: StoreService, command: WriteCommand, columns: list[str]) -> None:
        """Raises InvalidArgumentError if a column comes twice."""
        if len(set(columns)) < len(columns):
            raise InvalidArgumentError("the list `columns` has a column twice")
        self._store = store
        self._command = command
        self._columns = columns

    def write(self, details: SessionDetails) -> WriteResult | None:
        """Write the row of a second line. Return and raise as ``begin`` does, and as `PendingResult.result`."""
        row = self._row(details)
        result = self._store.write_row(self._command, row, details.seq)
        if result is not None:
            return result
        pending = self._begin_batch(row, details.seq)
        return None if pending is None else pending.result()

    def begin(self, details: SessionDetails) -> PendingResult | None:
        """Begin to write the row of a second line; None, with nothing done, if it must come as a batch.

        Raises:
            InvalidArgumentError: there is no row, or it has not a cell for each column.
            StoreError: nothing was applied.
        """
        row = self._row(details)
        pending = self._store.begin_row(self._command, row, details.seq)
        return self._begin_batch(row, details.seq) if pending is None else pending

    def planned(self, details: SessionDetails) -> object | None:
        """Return the row of a second line for the gatherer of the store, a ``RowPlanner``; None, with nothing done, if
        it has to come in another way. Raises as ``begin``."""
        row = self._row(details)
        return cast(RowPlanner, self._store).planned_row(self._command, row, details.seq)

    def _row(self, details: SessionDetails) -> dict[str, Any]:
        cells = details.row
        if cells is None or len(cells) != len(self._columns):
            raise InvalidArgumentError(
                'a write with `columns` needs one cell for each column in the second line: {"seq": 1, "row": [...]}'
            )
        return dict(zip(self._columns, cells_from_json(cells), strict=True))

    def _begin_batch(self, row: dict[str, Any], seq: int | None) -> PendingResult | None:
        batch = few_rows([row], self._store.describe_table(self._command.table).columns)
        return None if batch is None else self._store.begin_write(self._command, batch, seq)
