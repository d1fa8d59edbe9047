"""The JSON of Arrow Flight: commands, tickets, action bodies and the metadata of answers."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Literal, TypeVar

from pydantic import AliasChoices, BaseModel, Field, NonNegativeInt, StrictInt, StrictStr, ValidationError
from pydantic_core import ErrorDetails

from ..errors import InvalidArgumentError
from ..message import Message
from ..rows.operation import Operation
from ..rows.write import WriteCommand, WriteResult
from ..table.partition import HashLevel

Model = TypeVar("Model", bound=BaseModel)
_UNKNOWN = "extra_forbidden"
"""pydantic's type of the finding that a field is not one of the model's."""
_FINDINGS = 3
"""The most findings that an error tells."""


class TableName(Message, frozen=True, extra="forbid"):
    """The JSON body of the Flight actions ``describe_table`` and ``table_stats``, and the command of DoExchange."""

    table: str = Field(validation_alias=AliasChoices("table", "name"))


class DropBody(TableName, frozen=True):
    """The JSON body of the Flight action ``drop_table``."""

    keep_seconds: StrictInt = 0
    """How long the table can be recalled."""


class NowBody(Message, frozen=True, extra="forbid"):
    """The JSON body of the Flight action ``now``."""

    at_least: StrictInt = 0
    """A lower bound for the answer: the time on another server's clock."""


class RecallBody(Message, frozen=True, extra="forbid"):
    """The JSON body of the Flight action ``recall_table``."""

    table: StrictStr | StrictInt
    """Its name when it was dropped, or its id."""
    new_name: str | None = None


class MaintainBody(TableName, frozen=True):
    """The JSON body of the Flight action ``maintain``."""

    op: str


class BatchMetadata(Message, frozen=True):
    """The ``app_metadata`` of a batch in a DoPut stream: asks for an answer to this batch, under this number."""

    seq: int | None = None
    last: bool = False
    """No batch follows: the server can make this one durable without looking for another."""
    op: Operation | None = None
    """In a part of a transaction: the operation of this batch, if not the command's."""


class CommitMessage(Message, frozen=True, extra="forbid"):
    """The final message, without a batch, of a DoPut stream that is one commit or a part of a transaction."""

    commit: Literal[True]
    rows: NonNegativeInt
    """The number of rows in the stream: a stream that lost some commits nothing."""
    seq: int | None = None


class PutResult(WriteResult, frozen=True):
    """A ``PutResult`` of DoPut: the result of the batch with ``seq``, or of all batches without one."""

    seq: int | None = None


class LastChange(Message, frozen=True):
    """The JSON answer of the Flight action ``last_change``."""

    timestamp: int
    """Of the last commit that changed rows of the table; 0 if there is none."""


class InfoMetadata(Message, frozen=True):
    """The ``app_metadata`` of a FlightInfo: the snapshot and lease of its tickets."""

    snapshot: int
    schema_version: int
    lease: str | None = None
    """Identifies what the server keeps for the tickets, for ``release_scan``."""
    hash: list[HashLevel] | None = None
    """The hash levels to which the first buckets in every ticket's partition belong."""
    groups_at_most: int | None = None
    """Of a partial aggregate: there are no more groups than this, and the only ticket returns each of them once."""


class LeaseName(Message, frozen=True, extra="forbid"):
    """The JSON body of the Flight action ``release_scan``."""

    lease: StrictStr


class ScanMark(Message, frozen=True):
    """The ``app_metadata`` of some batches of a scan with ``marks``: where to resume after them.

    The same scan at the same ``snapshot`` with ``key_lower`` set to ``below`` returns exactly the rows that follow this
    batch.
    """

    below: str
    snapshot: int


class RowCount(Message, frozen=True):
    """The ``app_metadata`` of each message in a DoExchange answer."""

    rows: int
    """Rows in the message."""
    more: bool = False
    """Whether the answer continues in the next message."""


def read_json(model: type[Model], body: bytes, what: str) -> Model:
    """Parse the ``body`` of a request as a ``model``; ``what`` names it in errors.

    Raises:
        InvalidArgumentError: it is not JSON, lacks a field, or has an invalid or unknown one.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise InvalidArgumentError(explain(error, what, model.model_fields)) from None


def built(model: type[Model], what: str, **parts: object) -> Model:
    """Return a request, a ``model`` with the fields ``parts``; ``what`` names it in errors.

    Raises:
        InvalidArgumentError: a field is invalid or unknown.
    """
    try:
        return model(**parts)
    except ValidationError as error:
        raise InvalidArgumentError(explain(error, what, model.model_fields)) from None


def explain(error: ValidationError, what: str, known: Iterable[str] = ()) -> str:
    """Describe in one line what is wrong with the wire text of a request, ``what``: the first findings, and how many
    more there are. ``known`` are its field names."""
    findings = error.errors(include_url=False, include_input=False)
    fields = [*known]
    begun = f"{what}:" if findings[0]["type"] == _UNKNOWN else f"{what} is wrong{'' if findings[0]['loc'] else ':'}"
    words = [_finding(finding, fields) for finding in findings[:_FINDINGS]]
    if fields and any(map(_is_stray, findings)) and not any("did you mean" in word for word in words):
        words.append(f"known: {', '.join(fields)}")
    more = f" (and {len(findings) - _FINDINGS} more)" if len(findings) > _FINDINGS else ""
    return f"{begun} {'; '.join(words)}{more}"


def _finding(finding: ErrorDetails, fields: list[str]) -> str:
    part = ".".join(str(step) for step in finding["loc"])
    if finding["type"] == _UNKNOWN:
        near = get_close_matches(part, fields, 1) if _is_stray(finding) else None
        return f"unknown {part!r}{f': did you mean {near[0]!r}?' if near else ''}"
    words = _lowered(finding["msg"].removeprefix("Value error, "))
    return f"at {part}: {words}" if part else words


def _is_stray(finding: ErrorDetails) -> bool:
    """Return whether it is a field that the whole, not a part of it, does not have."""
    return finding["type"] == _UNKNOWN and len(finding["loc"]) == 1


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
    """Return the table that the path of a Flight descriptor names.

    Raises:
        InvalidArgumentError: it is not one name in UTF-8.
    """
    if len(path) != 1:
        raise InvalidArgumentError(f"a descriptor path must be one table name, not {len(path)} parts")
    try:
        return path[0].decode()
    except UnicodeDecodeError:
        raise InvalidArgumentError("the descriptor path is not valid UTF-8") from None
