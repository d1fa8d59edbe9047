"""All errors, as one tree: each leaf asks the caller for a different reaction.

    StoreError
    |-- InvalidArgumentError     the request is wrong: change it
    |-- NotFoundError            the table or row does not exist
    |-- AlreadyPresentError      the table or row already exists
    |-- ConflictError            another change came first: read again, then retry
    |-- WrongServerError         another server has that tablet: ask it
    |-- SnapshotTooOldError      the requested history is no longer kept
    |-- UnauthenticatedError     the caller is not authenticated
    |-- PermissionDeniedError    the caller may not do this
    |-- UnavailableError         not now: retry later
    |   `-- UnreadableFileError  the disk does not return the bytes of a file
    |-- StorageFullError         the disk is full: reads continue, writes resume when space returns
    |-- CorruptionError          bytes on disk are damaged: repair, or restore a copy
    `-- InternalError            a bug in Nyala

``RowErrors`` is separate: the batch was processed, but some of its rows were rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .rows.write import WriteResult


class StoreError(Exception):
    """The root. ``code`` is the error's word on the wire; ``message`` says what is wrong, where, and what to do."""

    code = "INTERNAL"
    request_id: str | None = None
    """What identifies the request in the log of the server that it failed on."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgumentError(StoreError):
    """The request can never work as it is."""

    code = "INVALID_ARGUMENT"


class NotFoundError(StoreError):
    """The table or row does not exist. (An unknown column is an ``InvalidArgumentError``.)"""

    code = "NOT_FOUND"


class AlreadyPresentError(StoreError):
    """A table or row with that name or key already exists."""

    code = "ALREADY_PRESENT"


class ConflictError(StoreError):
    """Another change came first."""

    code = "CONFLICT"


class WrongServerError(StoreError):
    """The tablet is on another server, which the message names. Nothing of the request was applied."""

    code = "WRONG_SERVER"


class SnapshotTooOldError(StoreError):
    """The requested time is older than the history that the table keeps."""

    code = "SNAPSHOT_TOO_OLD"


class UnauthenticatedError(StoreError):
    """The caller is not authenticated."""

    code = "UNAUTHENTICATED"


class PermissionDeniedError(StoreError):
    """The caller may not do this."""

    code = "PERMISSION_DENIED"


class UnavailableError(StoreError):
    """The store cannot do this now; the same request may succeed later.

    ``retry_after_seconds`` says when, if the store knows; then nothing of the request was applied. ``locations`` says
    where else: this process does not have the store, and the one that does is there, as far as is known. Nothing is
    known of it if they are empty; None: this is the process to ask.
    """

    code = "UNAVAILABLE"
    answer_is_lost = False
    """Whether the connection or the server ended the request while it ran, so that it may have been carried out."""

    def __init__(
        self, message: str, retry_after_seconds: float | None = None, locations: Sequence[str] | None = None
    ) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.locations = None if locations is None else [*locations]


NOT_BEGUN = "the call did not begin: "
"""How the message starts of a call that a server rejected before it looked at it, without any other sign."""


class UnreadableFileError(UnavailableError):
    """A file of the store exists, but the disk does not return its bytes. ``path`` as in ``CorruptionError``."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} cannot be read: {why}")
        self.path = path
        self.why = why

    def __reduce__(self) -> tuple[type[UnreadableFileError], tuple[str, str]]:
        return (UnreadableFileError, (self.path, self.why))


class StorageFullError(StoreError):
    """The disk is full. Nothing of the request was applied; reads continue."""

    code = "STORAGE_FULL"


class CorruptionError(StoreError):
    """Bytes on disk are not those that were written.

    ``path`` is relative to the data directory; ``offset`` counts bytes from the start of the file.
    """

    code = "CORRUPTION"

    def __init__(self, path: str, offset: int, why: str) -> None:
        super().__init__(f"{path} at byte {offset}: {why}")
        self.path = path
        self.offset = offset
        self.why = why


class InternalError(StoreError):
    """A bug in Nyala; the server's log has the details."""

    code = "INTERNAL"


class RowErrors(StoreError):
    """Some rows of a write were rejected; ``result`` says which and why. The others are applied unless ``atomic``."""

    code = "INVALID_ARGUMENT"

    def __init__(self, result: WriteResult) -> None:
        first = result.errors[0]
        more = f" (and {result.error_count - 1:,} more)" if result.error_count > 1 else ""
        super().__init__(
            f"{result.error_count:,} of {result.rows:,} rows rejected: {first.place}: "
            f"{first.code}: {first.message}{more}"
        )
        self.code = first.code
        self.result = result

    def __reduce__(self) -> tuple[type[RowErrors], tuple[WriteResult]]:
        return (RowErrors, (self.result,))


_LEAVES: tuple[type[StoreError], ...] = (
    InvalidArgumentError,
    NotFoundError,
    AlreadyPresentError,
    ConflictError,
    WrongServerError,
    SnapshotTooOldError,
    UnauthenticatedError,
    PermissionDeniedError,
    UnavailableError,
    StorageFullError,
    InternalError,
)
_BY_CODE = {leaf.code: leaf for leaf in _LEAVES}


class RemoteCorruptionError(CorruptionError):
    """A corruption that a server reported. The file is on the server, so only the message is known."""

    def __init__(self, message: str) -> None:
        StoreError.__init__(self, message)
        self.path, self.offset, self.why = "", 0, message


def error_of(
    code: str,
    message: str,
    retry_after_seconds: float | None = None,
    request_id: str | None = None,
    locations: Sequence[str] | None = None,
) -> StoreError:
    """Return the exception for ``code``. An unknown code becomes an InternalError that names it."""
    error = _error_of(code, message, retry_after_seconds, locations)
    error.request_id = request_id
    return error


def _error_of(
    code: str, message: str, retry_after_seconds: float | None, locations: Sequence[str] | None
) -> StoreError:
    if code == UnavailableError.code:
        return UnavailableError(message, retry_after_seconds, locations)
    if code == CorruptionError.code:
        return RemoteCorruptionError(message)
    leaf = _BY_CODE.get(code)
    return leaf(message) if leaf else InternalError(f"{code}: {message}")


def sentence_of(error: Exception) -> str:
    """Return the code and message of an error; of a bug only that it is one, since others may read it."""
    return f"{error.code}: {error.message}" if isinstance(error, StoreError) else "INTERNAL: a bug, which the log shows"
