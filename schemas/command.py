"""The JSON of Arrow Flight: commands, tickets, action bodies and the metadata of answers."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Literal, TypeVar

from pydantic import AliasChoices, BaseModel, Field, NonNegativeInt, StrictInt, StrictStr, ValidationError

from .errors import InvalidArgumentError
from .operation import Operation
from .write import WriteCommand, WriteResult

Model = TypeVar("Model", bound=BaseModel)


class TableName(BaseModel, frozen=True, extra="forbid"):
    """The body of ``describe_table`` and ``table_stats``, and the command of DoExchange."""

    table: str = Field(validation_alias=AliasChoices("table", "name"))


class DropBody(TableName, frozen=True):
    """The body of ``drop_table``."""

    keep_seconds: StrictInt = 0
    """How long the table can be recalled."""


class NowBody(BaseModel, frozen=True, extra="forbid"):
    """The body of ``now``."""

    at_least: StrictInt = 0
    """A lower bound for the answer: the time on another server's clock."""


class RecallBody(BaseModel, frozen=True, extra="forbid"):
    """The body of ``recall_table``."""

    table: StrictStr | StrictInt
    """Its name when it was dropped, or its id."""
    new_name: str | None = None


class MaintainBody(TableName, frozen=True):
    """The body of ``maintain``."""

    op: str


class BatchMetadata(BaseModel, frozen=True):
    """The ``app_metadata`` of a batch in DoPut: asks for an answer to this batch, under this number."""

    seq: int | None = None
    last: bool = False
    """No batch follows: the server can make this one durable without looking for another."""
    op: Operation | None = None
    """In a part of a transaction: the operation of this batch, if not the command's."""


class CommitMessage(BaseModel, frozen=True, extra="forbid"):
    """The final message, without a batch, of a DoPut stream that is one commit or a part of a transaction."""

    commit: Literal[True]
    rows: NonNegativeInt
    """The number of rows in the stream: a stream that lost some commits nothing."""
    seq: int | None = None


class PutResult(WriteResult, frozen=True):
    """A ``PutResult`` of DoPut: the result of the batch with ``seq``, or of all batches without one."""

    seq: int | None = None


class LastChange(BaseModel, frozen=True):
    """The answer of ``last_change``."""

    timestamp: int
    """Of the last commit that changed rows of the table; 0 if there is none."""


class InfoMetadata(BaseModel, frozen=True):
    """The ``app_metadata`` of a FlightInfo: the snapshot and lease of its tickets."""

    snapshot: int
    schema_version: int
    lease: str | None = None
    """Identifies what the server keeps for the tickets, for ``release_scan``."""


class LeaseName(BaseModel, frozen=True, extra="forbid"):
    """The body of ``release_scan``."""

    lease: StrictStr


class ScanMark(BaseModel, frozen=True):
    """The ``app_metadata`` of some batches of a scan with ``marks``: where to resume after them.

    The same scan at the same ``snapshot`` with ``key_lower`` set to ``below`` returns exactly the rows that follow this
    batch.
    """

    below: str
    snapshot: int


class RowCount(BaseModel, frozen=True):
    """The ``app_metadata`` of each message in a DoExchange answer."""

    rows: int
    """Rows in the message."""
    more: bool = False
    """Whether the answer continues in the next message."""


def read_json(model: type[Model], body: bytes, what: str) -> Model:
    """Parse ``body`` as a ``model``; ``what`` names it in errors.

    Raises:
        InvalidArgumentError: it is not JSON, lacks a field, or has an invalid or unknown one.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise InvalidArgumentError(explain(error, what)) from None


def built(model: type[Model], what: str, **parts: object) -> Model:
    """Return a ``model`` with the fields ``parts``; ``what`` names it in errors.

    Raises:
        InvalidArgumentError: a field is invalid or unknown.
    """
    try:
        return model(**parts)
    except ValidationError as error:
        raise InvalidArgumentError(explain(error, what, model.model_fields)) from None


def explain(error: ValidationError, what: str, known: Iterable[str] = ()) -> str:
    """Describe in one line what is wrong with ``what``: the first finding, and how many more there are. ``known`` are
    its field names."""
    findings = error.errors(include_url=False, include_input=False)
    first = findings[0]
    part = ".".join(str(step) for step in first["loc"])
    if first["type"] == "extra_forbidden":
        near = get_close_matches(str(first["loc"][-1]), list(known), 1)
        hint = f": did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}" if known else ""
        return f"{what}: unknown {part!r}{hint}"
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{what} is wrong{f' at {part}' if part else ''}: {_lowered(first['msg'])}{more}"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def write_command(path: list[bytes], command: bytes) -> WriteCommand:
    """Return the write that a DoPut descriptor asks for: a path of one name is an upsert, a command is JSON.

    Raises:
        InvalidArgumentError: it is anything else.
    """
    if path:
        return WriteCommand(table=table_of(path))
    return read_json(WriteCommand, command, "the DoPut command")


def table_of(path: list[bytes]) -> str:
    """Return the table that a descriptor path names.

    Raises:
        InvalidArgumentError: it is not one name in UTF-8.
    """
    if len(path) != 1:
        raise InvalidArgumentError(f"a descriptor path must be one table name, not {len(path)} parts")
    try:
        return path[0].decode()
    except UnicodeDecodeError:
        raise InvalidArgumentError("the descriptor path is not valid UTF-8") from None
