"""The specification of a scan: the JSON of DoGet tickets and GetFlightInfo commands."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
from pydantic import BeforeValidator, Field, PositiveInt, StrictInt

from ..errors import InvalidArgumentError
from ..message import Message
from ..table.partition_schema import TabletPartition
from .aggregate import AggregateFunction, aggregate_schema, measures_json
from .changes import ChangeSpec, feed_schema
from .order import OrderTerm


def _as_python(value: Any) -> Any:
    """Return numpy's integers as Python's, and all else as it is: text and floats are no counts of rows."""
    return value.__index__() if hasattr(value, "__index__") and not isinstance(value, bool) else value


WholeNumber = Annotated[StrictInt, BeforeValidator(_as_python)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True), BeforeValidator(_as_python)]


class ScanSpec(Message, frozen=True, extra="forbid"):
    """The request for one scan of a table's rows.

    ``columns`` None means all, an empty list means rows without cells (for counting). ``where`` is SQL text or the JSON
    of a filter tree. ``as_of`` is a timestamp or ISO text; None means now. ``changes`` asks for changes instead of
    rows, and replaces ``as_of``.
    """

    table: str
    columns: list[str] | None = None
    where: str | dict[str, Any] | None = None
    as_of: int | str | None = None
    changes: ChangeSpec | None = None
    now: int | None = None
    """The timestamp whose time NOW() is in ``where``; None means that of the snapshot."""
    max_staleness: Seconds | None = None
    """A replica may answer if it has every write that was acknowledged more than so many seconds before. None: only as
    of an earlier time."""
    ordered: bool = False
    limit: WholeNumber | None = None
    offset: WholeNumber = 0
    """Rows to skip before the limit counts, in an order."""
    order_by: list[OrderTerm] | None = None
    """Sort by these columns; rows with equal values come in primary-key order."""
    aggregate: dict[str, tuple[str, str]] | None = None
    """Compute measures instead of rows: ``{name: (column, function)}``, see ``schemas.aggregate``."""
    group_by: list[str] | None = None
    """With ``aggregate``: one row for each combination of these columns' values; None or empty: one row in total."""
    partial: bool = False
    """With ``aggregate``: a group may have several rows, for the caller to combine. The table may be read in parts,
    and groups may be as many as rows."""
    split_bytes: PositiveInt | None = None
    all_parts: bool = False
    """For a plan: include parts without rows, so that the parts together cover all keys of the table."""
    tablet: int | None = None
    """Read this tablet only: set by the store in tickets."""
    partition: TabletPartition | None = None
    """The tablet's partition, by which another server finds it: set by the store in tickets. Without ``tablet``: read
    the tablets that hold it now."""
    here: bool = False
    """Read only the tablets on this server: for clients that ask all servers."""
    tablets_here: str | None = None
    """With ``here``: fail unless the server still has the tablets that its plan reported."""
    key_lower: str | None = None
    """Read encoded keys from here on only, hexadecimal: set by the store in tickets."""
    key_upper: str | None = None
    """Read encoded keys below this only."""
    lease: str | None = None
    """The planned scan whose rowsets the server keeps for this ticket, if it still does: set by the store in tickets.
    """
    pin: bool = False
    """For plans: keep the rowsets that the scan reads for a while, even if they leave the table's history."""
    marks: bool = False
    """Send with some batches, in their ``app_metadata``, the keys at which the scan can resume: see ``ScanMark``."""
    planned: str | None = None
    """A digest of the columns in the plan: set by the store in tickets. The ticket is rejected if the columns have
    changed, so that the stream has the announced schema."""

    @property
    def moment(self) -> int | str | None:
        """The moment that it reads at, for changes the end of their range; None means now."""
        return self.changes.until if self.changes else self.as_of

    @property
    def moments(self) -> dict[str, int | str]:
        """All moments that it names, by the names of these parts."""
        parts = {"until": self.changes.until, "since": self.changes.since} if self.changes else {"as_of": self.as_of}
        return {name: moment for name, moment in parts.items() if moment is not None}

    def checked(self) -> ScanSpec:
        """Return the spec if its parts are consistent.

        Raises:
            InvalidArgumentError: they are not; the message names the part.
        """
        if self.limit is not None and self.limit < 0:
            raise InvalidArgumentError(f"limit {self.limit} is negative")
        if max((self.limit or 0) + self.offset, self.split_bytes or 0) >= 1 << 63:
            raise InvalidArgumentError("limit + offset may be at most 9,223,372,036,854,775,807, and split_bytes too")
        if self.offset < 0:
            raise InvalidArgumentError(f"offset {self.offset} is negative")
        self._check_order()
        for name in ("key_lower", "key_upper"):
            if not _is_hexadecimal(getattr(self, name)):
                raise InvalidArgumentError(f"{name} {getattr(self, name)!r} is not hexadecimal")
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise InvalidArgumentError("the list `columns` has a column twice")
        if self.changes and self.as_of is not None:
            raise InvalidArgumentError("as_of cannot be combined with changes: set `until` of changes instead")
        if self.all_parts and self.is_whole:
            raise InvalidArgumentError(
                "all_parts covers the whole table: it cannot be combined with ordered, order_by, limit, offset or "
                "aggregate"
            )
        if self.group_by is not None and self.aggregate is None:
            raise InvalidArgumentError("group_by needs aggregate")
        if self.partial and self.aggregate is None:
            raise InvalidArgumentError("partial needs aggregate")
        if self.aggregate is not None:
            measures_json(self.aggregate)
            self._check_goes_with_aggregate()
        elif self.offset and not (self.ordered or self.order_by):
            raise InvalidArgumentError("offset needs an order: give order_by, or ordered for primary-key order")
        return self

    def _check_order(self) -> None:
        if self.order_by is None:
            return
        names = [term.column for term in self.order_by]
        if not names or len(set(names)) < len(names):
            raise InvalidArgumentError("order_by must name at least one column, and no column twice")
        if self.ordered or self.changes:
            raise InvalidArgumentError("order_by cannot be combined with ordered (primary-key order) or with changes")

    def _check_goes_with_aggregate(self) -> None:
        for part in ("columns", "changes", "limit", "offset", "order_by"):
            if getattr(self, part) is not None and (part, getattr(self, part)) != ("offset", 0):
                raise InvalidArgumentError(
                    f"{part} cannot be combined with aggregate, which covers all rows that match"
                )
        if self.ordered or (self.is_part and not self.partial):
            raise InvalidArgumentError(
                "an aggregate covers the whole table: it cannot be combined with ordered or tablet"
            )
        means = [name for name, (_, function) in (self.aggregate or {}).items() if function == AggregateFunction.AVG]
        if self.partial and means:
            raise InvalidArgumentError(f"{means[0]!r}: avg cannot be combined from parts: request sum and count")

    @property
    def is_part(self) -> bool:
        """Whether it reads a part of the table, as a ticket does."""
        return (self.tablet, self.partition, self.key_lower, self.key_upper) != (None, None, None, None)

    @property
    def is_whole(self) -> bool:
        """Whether the scan is one stream, instead of one for each part of the table."""
        is_sum = self.aggregate is not None and not self.partial
        return bool(self.ordered or self.order_by or self.offset or self.limit is not None or is_sum)

    def pinned(self, snapshot: int) -> ScanSpec:
        """Return the same scan fixed at a snapshot."""
        if self.changes:
            return self.model_copy(update={"changes": self.changes.model_copy(update={"until": snapshot})})
        return self.model_copy(update={"as_of": snapshot})

    def batch_schema(self, table: pa.Schema) -> pa.Schema:
        """Return the schema of the scan's batches; ``table`` is the schema of all columns and includes the scan's."""
        if self.aggregate is not None:
            return aggregate_schema(table, self.aggregate, self.group_by or ())
        fields = list(table) if self.columns is None else [table.field(name) for name in self.columns]
        return feed_schema(fields, self.changes.before) if self.changes else pa.schema(fields)


def _is_hexadecimal(text: str | None) -> bool:
    try:
        bytes.fromhex(text or "")
    except ValueError:
        return False
    return True
