"""Direct read: the files of a table at one snapshot, kept by a store for readers outside it."""

from __future__ import annotations

from typing import Any

from pydantic import Field, NonNegativeInt, PositiveInt

from ..limits.limits import Limits
from ..message import Message
from ..table.partition_schema import PartitionSchema
from ..table.table import TableSchema
from .bucket_place import BucketPlace, InBucket

PIN_ID_LENGTH_MAX = 64
PIN_SECONDS_MAX = 7 * 86_400


class PinSnapshot(Message, frozen=True, extra="forbid"):
    """The body of ``pin_snapshot``: the store keeps a table's files for readers outside it."""

    table: str
    as_of: int | str | None = None
    """The snapshot; None means now."""
    ttl_seconds: int = Field(default=3600, ge=1, le=PIN_SECONDS_MAX)
    """How long to keep the files; each renewal of the pin starts this time again."""


class PinName(Message, frozen=True, extra="forbid"):
    """The body of ``renew_pin`` and ``release_pin``: which pin of the store."""

    pin_id: str = Field(max_length=PIN_ID_LENGTH_MAX)


class PinnedIn(BucketPlace, frozen=True, extra="forbid"):
    """Where the files of a pinned table are, if its store is in a bucket."""

    manifest: str
    """The object, after the prefix, that is there as long as the pin."""
    store_uuid: str
    sizes: dict[str, NonNegativeInt]
    """The bytes in each file, by its name after the prefix: ``tablets/<directory>/<file>``."""


class PinnedTable(InBucket, frozen=True, extra="forbid"):
    """The answer of ``pin_snapshot``: everything needed to read the files that the store keeps."""

    pin_id: str
    table: str
    table_id: PositiveInt
    snapshot: NonNegativeInt
    """Reads see exactly the commits up to this timestamp; other snapshots are not guaranteed."""
    schema_: TableSchema
    partitions: PartitionSchema
    tablets: tuple[dict[str, Any], ...]
    """The entries of the manifest, as in docs/format/manifest.md, with the files of each rowset."""
    limits: Limits
    directory: str
    """Within the store's directory; the files are ``tablets/<directory>/<file>`` below it. Empty in a bucket."""
    ttl_seconds: PositiveInt | None
    """None: until the pin is dropped."""
    bucket: PinnedIn | None = None
