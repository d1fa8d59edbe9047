"""Direct read: files of a table that a store keeps for readers outside, as they were at one snapshot."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from .limits import Limits
from .partition_schema import PartitionSchema
from .table import TableSchema

PIN_ID_LENGTH_MAX = 64
PIN_SECONDS_MAX = 7 * 86_400


class _PinBody(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PinSnapshot(_PinBody):
    """The body of ``pin_snapshot``."""

    table: str
    as_of: int | str | None = None
    """The snapshot; None means now."""
    ttl_seconds: int = Field(default=3600, ge=1, le=PIN_SECONDS_MAX)
    """The files are kept for so many seconds, and as many again each time the pin is renewed."""


class PinName(_PinBody):
    """The body of ``renew_pin`` and ``release_pin``."""

    pin_id: str = Field(max_length=PIN_ID_LENGTH_MAX)


class PinnedTable(_PinBody):
    """The answer of ``pin_snapshot``: all that is needed to read the files."""

    pin_id: str
    table: str
    table_id: PositiveInt
    snapshot: NonNegativeInt
    """Reads see exactly the commits up to this timestamp; no other snapshot is promised."""
    schema_: TableSchema
    partitions: PartitionSchema
    tablets: tuple[dict[str, Any], ...]
    """The entries of the manifest, as docs/format/manifest.md has them, with the files of each rowset."""
    limits: Limits
    directory: str
    """Where the files are, in the store's directory: ``tablets/<directory>/<file>`` below it."""
    ttl_seconds: PositiveInt
