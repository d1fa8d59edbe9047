"""Admins: the users that the operator lets do everything, each bound to the source of its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...schemas.errors import InvalidArgumentError
from ...schemas.store.grants import ADMIN_ROLE
from .identity import Identity, Source


class Admins:
    """The administrators of a server, who may do everything: the users of the option ``admins``, and all with the role
    admin."""

    def __init__(self, names: Iterable[str], sources: Sequence[Source]) -> None:
        """``names``: users, each as ``SOURCE:USER``; a bare ``USER`` if the server has one of ``sources`` only.

        Raises:
            InvalidArgumentError: a name could come from several sources, or the server lacks its source.
        """
        self._users = frozenset(_user(name, sources) for name in names)

    def include(self, identity: Identity) -> bool:
        """Whether a user may do everything, whatever a store grants."""
        return ADMIN_ROLE in identity.roles or (identity.source, identity.user) in self._users


def _user(name: str, sources: Sequence[Source]) -> tuple[Source, str]:
    prefix, colon, user = name.partition(":")
    if colon and prefix in set(Source):
        if prefix not in sources:
            option = _OPTIONS[Source(prefix)]
            raise InvalidArgumentError(
                f"admins names {name!r}, but the server runs without {option}: set it, or remove the name"
            )
        return Source(prefix), user
    if len(sources) > 1:
        choices = " or ".join(f"{source}:{name}" for source in sources)
        raise InvalidArgumentError(f"admins: {name!r} can come from several sources of users: write {choices}")
    return sources[0], name


_OPTIONS = {Source.TOKEN: "tokens", Source.JWT: "jwks", Source.CERTIFICATE: "tls_client_ca"}
