"""Token: a bearer token, and the header that shows it."""

from __future__ import annotations

from collections.abc import Callable

from ...schemas.errors import InvalidArgumentError

Token = str | Callable[[], str]
"""A bearer token, or a function that returns the current one. It is called for every call and every stream that is
opened, so it should remember its answer; other processes get it pickled."""

_SIZE_MAX = 8000
"""Characters of a token: servers take 8 KiB of headers."""


def header(token: str) -> tuple[bytes, bytes]:
    """Return the header of a Flight call that shows the client's token.

    Raises:
        InvalidArgumentError: it has characters that a header cannot have, or is too long. The message does not have it.
    """
    if not isinstance(token, str) or not token or len(token) > _SIZE_MAX or not token.isascii():
        raise InvalidArgumentError(f"a token has 1 to {_SIZE_MAX:,} ASCII characters")
    if not token.isprintable() or " " in token:
        raise InvalidArgumentError(
            "a token has no spaces or control characters, such as the line end of a file: strip it"
        )
    return (b"authorization", b"Bearer " + token.encode())
