"""The token file: who may log in with which token. It has hashes only; a token is shown once, when it is created.

A token is ``nyala_ID_SECRET``: the id names the entry, and the secret has 256 random bits. No one can guess or search
that many, so one SHA-256 is enough, where passwords would need a slow hash.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, StringConstraints, ValidationError

from ...schemas.errors import InvalidArgumentError, NotFoundError
from ...schemas.protocol.command import explain

PREFIX = "nyala_"
_TOKEN = re.compile(PREFIX + r"([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_SECRET_BYTES = 32
_MODE = 0o600

Name = Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]{0,126}[^\s\x00-\x1f\x7f])?$")]
"""A user or role: 1 to 128 characters, without control characters, or spaces at its ends."""


class TokenEntry(BaseModel, frozen=True, extra="forbid"):
    """One token in a token file, without its secret."""

    id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]
    user: Name
    roles: tuple[Name, ...] = ()
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    """The hash of the whole token."""
    created: AwareDatetime
    expires: AwareDatetime | None = None
    """None: never."""
    note: str = ""


class TokenList(BaseModel, frozen=True, extra="forbid"):
    """The content of a token file."""

    version: int = 1
    tokens: tuple[TokenEntry, ...] = ()


def read_tokens(path: Path, is_served: bool = False) -> TokenList:
    """Read a token file; ``is_served``: for a server, which lets users in by it.

    Raises:
        NotFoundError: there is none.
        InvalidArgumentError: it cannot be read, is not a token file, or others could log in, as ``read_guarded`` says.
    """
    try:
        content = read_guarded(path, is_served)
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no token file {path}; make one with `nyala token create`, or mount it into the container"
        ) from None
    except OSError as error:
        why = f"the token file {path} cannot be read by the user {os.geteuid()}: {error.strerror}"
        raise InvalidArgumentError(why) from None
    try:
        found = TokenList.model_validate_json(content)
    except ValidationError as error:
        raise InvalidArgumentError(explain(error, f"the token file {path}")) from None
    if found.version != 1:
        raise InvalidArgumentError(f"the token file {path} has version {found.version}; this Nyala reads version 1")
    return found


def create_token(
    path: Path, user: str, roles: tuple[str, ...] = (), expires: dt.datetime | None = None, note: str = ""
) -> tuple[str, TokenEntry]:
    """Add a token to a file, which is made if missing; return it, and its entry. Nothing keeps the token itself.

    Raises:
        InvalidArgumentError: a name is invalid, or the file is; or it cannot be written.
    """
    number = secrets.token_hex(6)
    token = f"{PREFIX}{number}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    given = {"id": number, "user": user, "roles": roles, "created": _now(), "expires": expires, "note": note}
    try:
        entry = TokenEntry(sha256=hashlib.sha256(token.encode()).hexdigest(), **given)  # pyright: ignore[reportArgumentType]
    except ValidationError as error:
        raise InvalidArgumentError(explain(error, "the token")) from None
    with _changing(path) as change:
        change(lambda found: (*found, entry))
    return token, entry


def revoke_tokens(path: Path, ids: frozenset[str] = frozenset(), user: str | None = None) -> list[TokenEntry]:
    """Remove tokens by their ids, or all of a user; return their entries.

    Raises:
        NotFoundError: there is no such token.
        InvalidArgumentError: the file is invalid, or cannot be written.
    """
    with _changing(path) as change:
        before = read_tokens(path).tokens
        gone = [each for each in before if each.id in ids or (user is not None and each.user == user)]
        if missing := ids - {each.id for each in gone}:
            raise NotFoundError(f"{path} has no token {', '.join(sorted(missing))}; see `nyala token list`")
        if not gone:
            raise NotFoundError(f"{path} has no token of {user!r}; see `nyala token list`")
        change(lambda found: tuple(each for each in found if each not in gone))
    return gone


def id_of(token: str) -> str | None:
    """Return the id in a caller's token; None if it does not look like one of ours."""
    matched = _TOKEN.fullmatch(token)
    return matched[1] if matched else None


def matches(token: str, entry: TokenEntry) -> bool:
    """Return whether a caller's token is that of an entry, in a time that does not depend on where they differ."""
    return hmac.compare_digest(hashlib.sha256(token.encode()).hexdigest(), entry.sha256)


def read_guarded(path: Path, is_served: bool = True) -> bytes:
    """Read a file that says who may log in; ``is_served``: for a server.

    Raises:
        InvalidArgumentError: others can write to it, or it is served and belongs to another user: they could log in.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        about = os.fstat(file.fileno())
        content = file.read()
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidArgumentError(
            f"other users can write to {path}, which would let them log in; run: chmod go-w {path}"
        )
    if is_served and about.st_uid not in (0, os.geteuid()):
        raise InvalidArgumentError(
            f"{path} belongs to the user {about.st_uid}, who could add tokens to it and log in; use chown to "
            "give it to root, or to the user that runs the server"
        )
    return content


_Change = Callable[[Callable[[tuple[TokenEntry, ...]], tuple[TokenEntry, ...]]], None]


@contextmanager
def _changing(path: Path) -> Iterator[_Change]:
    """Lend a function that changes the file as a whole; commands that run at once wait for each other."""
    try:
        with open(path.with_name(path.name + ".lock"), "a", opener=_private) as lock:
            if os.geteuid() == 0:
                _make_like(lock.fileno(), path)  # or the owner of the file could not change it any more
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lambda changed: _write(path, changed(read_tokens(path).tokens if path.exists() else ()))
    except OSError as error:
        raise InvalidArgumentError(f"the token file {path} cannot be written: {error.strerror}") from None


def _write(path: Path, tokens: tuple[TokenEntry, ...]) -> None:
    """Replace the file durably. Its owner and mode stay: a server that could not read it would keep the old tokens."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with open(part, "w", opener=_private) as file:
            _make_like(file.fileno(), path)
            file.write(TokenList(tokens=tokens).model_dump_json(indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _make_like(number: int, path: Path) -> None:
    """Give an open file the owner and the mode of another, if that exists."""
    with suppress(FileNotFoundError):
        old, new = os.stat(path), os.fstat(number)
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            os.fchown(number, old.st_uid, old.st_gid)
        os.fchmod(number, stat.S_IMODE(old.st_mode))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, _MODE)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(microsecond=0)
