"""The change feed: its request, and the columns of its result."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ..message import Message
from ..table.names import BEFORE

BY_COMMITS = ("insert", "update", "delete")
"""The words of the column ``_op`` for what commits do."""
OPS = (*BY_COMMITS, "expire")
"""All of them: nobody deletes a row that expires."""
GONE = ("delete", "expire")
"""Those of rows that are gone."""


class ChangeSpec(Message, frozen=True, extra="forbid"):
    """The request for a change feed: read what commits with ``since`` < timestamp <= ``until`` changed.

    Moments are timestamps or ISO text; ``until`` None means now. The result is the net change of each key, or with
    ``every`` one row for each key and commit; ``before`` adds the previous values.
    """

    since: int | str
    until: int | str | None = None
    before: bool = False
    every: bool = False


def feed_schema(columns: Sequence[pa.Field], before: bool) -> pa.Schema:
    """Return the schema of a change feed: ``_op``, ``_timestamp``, ``columns`` and, if asked for, their previous
    values."""
    own = [pa.field("_op", pa.string(), False), pa.field("_timestamp", pa.int64(), False)]
    earlier = [column.with_name(BEFORE + column.name).with_nullable(True) for column in columns] if before else []
    return pa.schema([*own, *columns, *earlier])
