"""The options of ``format("nyala")``: what there is, what it may be, and a clear word for what is not.

Spark hands options over as text, with names in lower case. One that is not known is refused: a misspelt
`snapshotTimestmp` that is ignored would read other rows than were asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal, Self, TypedDict, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError
from pydantic.alias_generators import to_camel

from ...schemas.errors import InvalidArgumentError
from ...schemas.operation import Operation
from ...schemas.timestamp import parse_moment

SPLIT_BYTES = 64 << 20
"""What one task reads, about, unless told otherwise: some tasks a core for a large table, one task for a small one."""

_OF_SPARK = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark takes itself and hands on to the sink of a stream."""


_OF_SHIM = frozenset({"statement", "leftOut"})
"""Options that nobody else needs to know of."""


def _moment(text: Any) -> Any:
    return int(text) if isinstance(text, str) and text.strip().isdecimal() else text


def _names(text: Any) -> Any:
    """A list of names in JSON, or with commas between them."""
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


class Place(BaseModel):
    """Which table, and where."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    uri: str
    """Where the server listens, as in grpc://127.0.0.1:8815."""
    table: str
    """Its name; ``load("name")`` says it too."""

    def checked(self) -> Self:
        """Return the options, with timestamps for moments, if they make sense together.

        Raises:
            InvalidArgumentError: naming those that do not.
        """
        return self


Model = TypeVar("Model", bound=Place)


class _Selection(Place):
    columns: Names | None = None
    filter: str | None = None
    """SQL text, evaluated in the store."""
    read_change_feed: bool = False
    """Every change of each row, with ``_op`` and ``_timestamp``; a stream is always that."""
    before_values: bool = False
    """With changes: also what the columns held before."""
    split_size_bytes: PositiveInt = SPLIT_BYTES


class BatchReadOptions(_Selection):
    """Of ``spark.read``."""

    _SNAPSHOTS: ClassVar = ("snapshot_timestamp", "timestamp_as_of", "version_as_of")
    _MOMENTS: ClassVar = (*_SNAPSHOTS, "start_timestamp", "end_timestamp")

    snapshot_timestamp: Moment | None = None
    timestamp_as_of: Moment | None = None
    version_as_of: NonNegativeInt | None = None
    start_timestamp: Moment | None = None
    """Read what commits after this moment changed, instead of what is there."""
    end_timestamp: Moment | None = None
    """Up to this moment, itself included."""
    aggregate: Measures | None = None
    """Give one row of measures, worked out in the store, in the place of rows."""
    operation: Operation | None = None
    """What statements do that write to a view with these options, as ``ignore_null``."""
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
                f"{snapshots[0]} cannot be combined with startTimestamp, which ends at endTimestamp"
            )
        for name in ("end_timestamp", "read_change_feed", "before_values"):
            if getattr(self, name) and self.start_timestamp is None:
                raise InvalidArgumentError(f"{to_camel(name)} applies to changes only: set startTimestamp too")
        if self.aggregate is not None and (self.columns is not None or self.start_timestamp is not None):
            other = "columns" if self.columns is not None else "startTimestamp"
            raise InvalidArgumentError(f"aggregate cannot be combined with {other}: it covers all rows that match")
        return parsed

    @property
    def is_writable(self) -> bool:
        """Whether a view with these options may be written to: it is the whole table, as it is now."""
        return self.model_fields_set <= {"uri", "table", "split_size_bytes", "operation", "ignore_null"}

    @property
    def snapshot(self) -> int | str | None:
        """The moment to read at; None for now."""
        return next((value for name in self._SNAPSHOTS if (value := getattr(self, name)) is not None), None)


class StreamReadOptions(_Selection):
    """Of ``spark.readStream``."""

    starting_timestamp: Moment = "earliest"
    """``earliest``: all rows there are, as inserts, then what changes; ``latest``: what changes from now on; or what
    changes after a moment."""
    max_rows_per_trigger: PositiveInt | None = None
    max_bytes_per_trigger: PositiveInt | None = None
    fail_on_data_loss: bool = True
    """False: where the history that a stream needs is gone, go on with what there is, and lose the changes between."""

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


class _Writing(Place):
    operation: Operation = Operation.UPSERT
    operation_column: str | None = None
    """A column that holds the operation of each row; it is not written itself."""
    ignore_null: bool = False
    """A NULL leaves the cell of the table as it is."""
    txn_app_id: Annotated[str, Field(min_length=1, max_length=100)] | None = None

    def checked(self) -> Self:
        """See Place."""
        if self.operation_column is not None and "operation" in self.model_fields_set:
            raise InvalidArgumentError("operation and operationColumn exclude each other: keep one of them")
        return self


class WriteOptions(_Writing):
    """Of ``df.write``."""

    txn_version: NonNegativeInt | None = None
    statement: Literal["insert", "write"] | None = None
    """Said by the shim in Java and by ``write_table``: whether it is a statement of SQL, or ``df.write``."""
    left_out: Names = []
    """Said by the shim: the columns that Spark has filled, which are not to be written."""

    def checked(self) -> Self:
        """See Place."""
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise InvalidArgumentError("txnAppId and txnVersion must be given together")
        return super().checked()


class StreamWriteOptions(_Writing):
    """Of ``df.writeStream``. Without ``txnAppId`` the query's own id is taken, which its checkpoint keeps."""


class ReadKeywords(TypedDict, total=False):
    """The options of ``BatchReadOptions`` that ``read_table`` takes by these names alone."""

    timestampAsOf: int | str
    versionAsOf: int
    readChangeFeed: bool
    beforeValues: bool
    splitSizeBytes: int
    aggregate: str
    operation: str
    ignoreNull: bool


class WriteKeywords(TypedDict, total=False):
    """The options of ``WriteOptions`` that ``write_table`` takes by these names alone."""

    operationColumn: str
    ignoreNull: bool
    txnAppId: str
    txnVersion: int


def parse(
    model: type[Model], given: Mapping[str, str], what: Literal["read", "readStream", "write", "writeStream"]
) -> Model:
    """Return the options that a user gave for ``what``.

    Raises:
        InvalidArgumentError: one is missing, unknown or wrong, or does not go with another.
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
    """Whether options for reading are those of a stream, as far as they tell."""
    names = {name.lower() for name in given}
    only = {
        name.lower() for name in map(to_camel, StreamReadOptions.model_fields.keys() - BatchReadOptions.model_fields)
    }
    return bool(names & only) or ("readchangefeed" in names and "starttimestamp" not in names)


def _placed(given: Mapping[str, str]) -> dict[str, str]:
    """Return options by name in lower case; ``load("name")`` comes as ``path``, ``load(["a", "b"])`` as ``paths``."""
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
