"""The options of ``format("nyala")``: names, valid values, and clear errors for others.

Spark passes options as text, with names in lower case. Unknown ones are rejected: ignoring a misspelt
`snapshotTimestmp` would read the wrong rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, ValidationError
from pydantic.alias_generators import to_camel, to_snake

from ...schemas.cells.timestamp import parse_moment
from ...schemas.errors import InvalidArgumentError
from ...schemas.rows.operation import Operation
from .server import ServerKeywords, ServerOptions

SPLIT_BYTES = 64 << 20
"""Default bytes for one task: a few tasks per core for a large table, one task for a small one."""

NAMES: dict[str, list[str]] = json.loads(
    (Path(__file__).parents[2] / "java/src/main/resources/io/nyala/spark/options/options.json").read_text("utf-8")
)
"""The names of options in groups, as the Java shim reads them, too."""

_OF_SPARK = frozenset(name.lower() for name in NAMES["spark"])
"""Options that Spark uses itself, or passes to the sink of a stream."""

_OF_SHIM = frozenset({"statement", "leftOut"})
"""Internal options of the Java shim."""


def _moment(text: Any) -> Any:
    return int(text) if isinstance(text, str) and text.strip().isdecimal() else text


def _names(text: Any) -> Any:
    """Parse a list of names, in JSON or separated by commas."""
    if not isinstance(text, str):
        return text
    if text.lstrip().startswith("["):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ValueError(f"not a JSON list: {error}") from None
    return [name.strip() for name in text.split(",") if name.strip()]


def _measures(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from None


Moment = Annotated[int | str, BeforeValidator(_moment)]
"""A timestamp of the store, or ISO 8601 text with a time zone."""
Names = Annotated[list[str], BeforeValidator(_names)]


Measures = Annotated[dict[str, tuple[str, str]], BeforeValidator(_measures)]
"""``{name: (column, function)}``, as JSON."""


class Place(ServerOptions, frozen=True):
    """The options of ``format("nyala")`` that name the table and its server."""

    table: str
    """Its name; also given by ``load("name")``."""

    def checked(self) -> Self:
        """Return the options with moments as timestamps, after checking that they fit together.

        Raises:
            InvalidArgumentError: some do not; the message names them.
        """
        return self


Model = TypeVar("Model", bound=Place)


class _Selection(Place, frozen=True):
    columns: Names | None = None
    filter: str | None = None
    """SQL text, evaluated in the store."""
    read_change_feed: bool = False
    """Read every change of each row, with ``_op`` and ``_timestamp``; streams always do."""
    before_values: bool = False
    """With changes, also read the previous values."""
    split_size_bytes: PositiveInt = SPLIT_BYTES


class BatchReadOptions(_Selection, frozen=True):
    """The options of ``spark.read``."""

    _SNAPSHOTS: ClassVar = tuple(map(to_snake, NAMES["snapshot"]))
    _MOMENTS: ClassVar = (*_SNAPSHOTS, "start_timestamp", "end_timestamp")

    snapshot_timestamp: Moment | None = None
    timestamp_as_of: Moment | None = None
    version_as_of: NonNegativeInt | None = None
    start_timestamp: Moment | None = None
    """Read the changes of commits after this moment instead of the rows."""
    end_timestamp: Moment | None = None
    """The end of the changes, inclusive."""
    aggregate: Measures | None = None
    """Return one row of measures, computed in the store, instead of rows."""
    operation: Operation | None = None
    """The operation of statements that write to a view with these options, like ``ignore_null``."""
    ignore_null: bool = False

    def checked(self) -> Self:
        """See Place."""
        given = {name: value for name in self._MOMENTS if (value := getattr(self, name)) is not None}
        parsed = self.model_copy(update={name: parse_moment(value, to_camel(name)) for name, value in given.items()})
        snapshots = [to_camel(name) for name in given if name in self._SNAPSHOTS]
        if len(snapshots) > 1:
            raise InvalidArgumentError(f"{' and '.join(snapshots)} exclude each other: keep one of them")
        if self.start_timestamp is not None and snapshots:
            raise InvalidArgumentError(
                f"give {snapshots[0]} or startTimestamp, not both: for the end of a read from startTimestamp use "
                "endTimestamp"
            )
        for name in ("end_timestamp", "read_change_feed", "before_values"):
            if getattr(self, name) and self.start_timestamp is None:
                raise InvalidArgumentError(f"{to_camel(name)} applies to changes only: set startTimestamp too")
        if self.aggregate is not None and (self.columns is not None or self.start_timestamp is not None):
            other = "columns" if self.columns is not None else "startTimestamp"
            raise InvalidArgumentError(
                f"aggregate cannot be combined with {other}: an aggregate covers all rows that match"
            )
        return parsed

    @property
    def is_writable(self) -> bool:
        """Whether a view with these options may be written to: only the whole, current table may."""
        return self.model_fields_set.isdisjoint(map(to_snake, NAMES["part"] + NAMES["snapshot"]))

    @property
    def snapshot(self) -> int | str | None:
        """The moment to read at; None for now."""
        return next((value for name in self._SNAPSHOTS if (value := getattr(self, name)) is not None), None)


class StreamReadOptions(_Selection, frozen=True):
    """The options of ``spark.readStream``."""

    starting_timestamp: Moment = "earliest"
    """``earliest``: all existing rows as inserts, then changes; ``latest``: only new changes; or the changes after a
    moment."""
    max_rows_per_trigger: PositiveInt | None = None
    max_bytes_per_trigger: PositiveInt | None = None
    fail_on_data_loss: bool = True
    """False: if the history that a stream needs is gone, continue with the rest and lose the changes in between."""

    def checked(self) -> Self:
        """See Place."""
        if not self.read_change_feed:
            raise InvalidArgumentError("a stream reads changes, with the columns _op and _timestamp: set "
                                       "readChangeFeed=true")  # fmt: skip
        if self.max_rows_per_trigger is not None and self.max_bytes_per_trigger is not None:
            raise InvalidArgumentError("maxRowsPerTrigger and maxBytesPerTrigger exclude each other: keep one of them")
        if self.starting_timestamp in ("earliest", "latest"):
            return self
        return self.model_copy(
            update={"starting_timestamp": parse_moment(self.starting_timestamp, "startingTimestamp")}
        )


class _Writing(Place, frozen=True):
    operation: Operation = Operation.UPSERT
    operation_column: str | None = None
    """A column with the operation of each row; it is not written itself."""
    ignore_null: bool = False
    """NULL leaves a cell unchanged."""
    txn_app_id: Annotated[str, Field(min_length=1, max_length=100)] | None = None

    def checked(self) -> Self:
        """See Place."""
        if self.operation_column is not None and "operation" in self.model_fields_set:
            raise InvalidArgumentError("operation and operationColumn exclude each other: keep one of them")
        return self


class WriteOptions(_Writing, frozen=True):
    """The options of ``df.write``."""

    txn_version: NonNegativeInt | None = None
    statement: Literal["insert", "write"] | None = None
    """Set by the Java shim and by ``write_table``: whether the write is a statement of SQL or ``df.write``."""
    left_out: Names = Field(default_factory=list)
    """Set by the shim: columns that Spark filled and that must not be written."""

    def checked(self) -> Self:
        """See Place."""
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise InvalidArgumentError("txnAppId and txnVersion must be given together")
        return super().checked()


class StreamWriteOptions(_Writing, frozen=True):
    """The options of ``df.writeStream``. The default of ``txnAppId`` is the query's id, which its checkpoint keeps."""

    merge_schema: bool = False
    """Add columns to the table that the rows have and it lacks, and widen narrower ones."""


class ReadKeywords(ServerKeywords, total=False):
    """The options of ``BatchReadOptions`` that are keywords of ``read_table`` only under these names."""

    timestampAsOf: int | str
    versionAsOf: int
    readChangeFeed: bool
    beforeValues: bool
    splitSizeBytes: int
    aggregate: str
    operation: str
    ignoreNull: bool


class WriteKeywords(ServerKeywords, total=False):
    """The options of ``WriteOptions`` that are keywords of ``write_table`` only under these names."""

    operationColumn: str
    ignoreNull: bool
    txnAppId: str
    txnVersion: int


def parse(
    model: type[Model], given: Mapping[str, str], what: Literal["read", "readStream", "write", "writeStream"]
) -> Model:
    """Return a Spark user's options of ``format("nyala")`` for ``what``.

    Raises:
        InvalidArgumentError: one is missing, unknown or invalid, or conflicts with another.
    """
    written = {field.alias.lower(): field.alias for field in model.model_fields.values() if field.alias}
    named: dict[str, str] = {}
    for name, value in _placed(given).items():
        if name in written:
            named[written[name]] = value
        elif name not in _OF_SPARK:
            raise InvalidArgumentError(_unknown(name, sorted({*written.values()} - _OF_SHIM), what))
    for name, example in (("uri", "grpc://127.0.0.1:8815"), ("table", "flights")):
        if not named.get(name):
            raise InvalidArgumentError(f"option {name!r} is missing, as in .option({name!r}, {example!r})")
    try:
        return model.model_validate(named).checked()
    except ValidationError as error:
        finding = error.errors(include_url=False)[0]
        why = f"option {finding['loc'][0]} is {finding.get('input')!r}: {finding['msg']}"
        raise InvalidArgumentError(why) from None


def is_of_stream(given: Mapping[str, str]) -> bool:
    """Guess from the options of a Spark read whether it is a stream."""
    names = {name.lower() for name in given}
    is_of_feed = "readchangefeed" in names and "starttimestamp" not in names
    return is_of_feed or any(name.lower() in names for name in NAMES["stream"])


def _placed(given: Mapping[str, str]) -> dict[str, str]:
    """Return options by lower-case name; ``load("name")`` arrives as ``path``, ``load(["a", "b"])`` as ``paths``."""
    named = {name.lower(): value for name, value in given.items()}
    if "paths" in named:
        raise InvalidArgumentError("load() takes one table; read each table separately and combine them with union()")
    path = named.pop("path", None)
    if path is not None and named.setdefault("table", path) != path:
        raise InvalidArgumentError(
            f"load() or save() names the table {path!r}, but option table names {named['table']!r}"
        )
    return named


def _unknown(name: str, known: list[str], what: str) -> str:
    close = get_close_matches(name, [each.lower() for each in known], 1)
    hint = next((f", did you mean {each}?" for each in known if close and each.lower() == close[0]), ";")
    return f"unknown {what} option {name!r}{hint} known: {', '.join(known)}"
