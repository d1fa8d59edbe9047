"""The names of writers of numbered writes where a server knows its users: each user has names of its own.

``\\x01USER\\x01NAME``, with the user quoted as in a URL: two users never make the same. A server puts its caller in
front, whatever a client sends, so nobody writes under the name of another.

A store keeps the versions of applications in the same way, for each tablet: ``\\x01:\\x01APPLICATION@TABLET``. No user
has such names, since a colon in that of a user is quoted.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from urllib.parse import quote, unquote

from .write import WRITER_LENGTH_MAX

_MARK = "\x01"
_SUFFIX_MAX = 64
_APPLICATIONS = f"{_MARK}:{_MARK}"


def owned(user: str, writer: str) -> str:
    """Return the name of a user's writer, under which the numbers of its writes are kept.

    It is no longer than any other name: a longer one is replaced by its hash, up to the tablet that may be at its end.
    """
    name = f"{_MARK}{quote(user, safe=' @.+=,/')}{_MARK}{writer}"
    if len(name) <= WRITER_LENGTH_MAX:
        return name
    _, found, tablet = writer.rpartition("@")
    suffix = f"@{tablet}" if found and len(tablet) < _SUFFIX_MAX else ""
    return f"{_MARK}{blake2b(name.encode(errors='replace'), digest_size=16).hexdigest()}{suffix}"


def name_of_application(app_id: str, tablet: str) -> str:
    """Return the name under which a store keeps the versions of an application in one tablet."""
    return f"{_APPLICATIONS}{app_id}@{tablet}"


def is_of_application(name: str) -> bool:
    """Return whether versions of an application are kept under a name, and no numbered writes."""
    return name.startswith(_APPLICATIONS)


def is_owned(name: str) -> bool:
    """Return whether the name of a writer has a user."""
    return name.startswith(_MARK)


def unowned(name: str) -> str | None:
    """Return the name of a writer without its user; None if it has none, is a hash, or would be that of another
    user."""
    if not is_owned(name):
        return None
    _, found, writer = name[1:].partition(_MARK)
    return writer if found and not is_owned(writer) else None


def user_of(name: str) -> str:
    """Return the user in the name of a writer, quoted as there; empty if it has none. Names that are hashes have one
    together."""
    if not is_owned(name):
        return ""
    user, found, _ = name[1:].partition(_MARK)
    return user if found else _MARK


@lru_cache(4096)
def login_of(name: str) -> str:
    """Return the user in the name of a writer as it logs in; empty if the name has none, or is a hash."""
    user = user_of(name)
    return "" if user == _MARK else unquote(user)


def shown(name: str) -> str:
    """Return the name of a writer for people: ``USER/NAME``."""
    return name.replace(_MARK, "", 1).replace(_MARK, "/", 1) if is_owned(name) else name
