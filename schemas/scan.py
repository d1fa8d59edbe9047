"""What a scan reads: the JSON of DoGet tickets and GetFlightInfo commands."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt

from .errors import InvalidArgumentError


class ScanSpec(BaseModel):
    """One scan.

    ``columns`` None means all, an empty list means rows without cells (for counting). ``where`` is SQL text or the
    JSON of a filter tree. ``as_of`` is a timestamp or ISO text; None means now.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: str
    columns: list[str] | None = None
    where: str | dict[str, Any] | None = None
    as_of: int | str | None = None
    ordered: bool = False
    limit: int | None = None
    split_bytes: PositiveInt | None = None
    tablet: int | None = None
    """Read this tablet only: set by the store in the tickets that it hands out."""

    def checked(self) -> ScanSpec:
        """Return the spec if its parts make sense together.

        Raises:
            InvalidArgumentError: naming the part that does not.
        """
        if self.limit is not None and self.limit < 0:
            raise InvalidArgumentError(f"limit {self.limit} is negative")
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise InvalidArgumentError("a column is named twice in columns")
        return self
