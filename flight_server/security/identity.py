"""Identity: who calls."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from enum import StrEnum

from ...schemas.errors import UnauthenticatedError


class Source(StrEnum):
    """The proof that the name of a caller comes from. Each source has names of its own: two may give one name to two
    people."""

    TOKEN = "token"
    JWT = "jwt"
    CERTIFICATE = "certificate"


@dataclass(slots=True, weakref_slot=True, eq=False)
class Identity:
    """The identity of a caller: a user, as long as what proves it is valid. Shared by all calls with the same proof."""

    user: str
    roles: frozenset[str] = frozenset()
    expires: float = math.inf
    """In seconds since 1970."""
    source: Source = Source.TOKEN
    token_id: str = ""
    """The id of a token of the token file."""
    is_revoked: bool = False
    proved_by: Identity | None = None
    """What a handshake showed, which this ends with."""

    @property
    def is_valid(self) -> bool:
        """Whether the user may go on: the proof has neither expired nor been revoked."""
        if self.is_revoked or time.time() >= self.expires:
            return False
        return self.proved_by is None or self.proved_by.is_valid

    @property
    def ended(self) -> str:
        """Why a call that runs may not go on, if it may not."""
        is_revoked = self.is_revoked or (self.proved_by is not None and self.proved_by.is_revoked)
        why = "was revoked" if is_revoked else "has expired"
        return f"the token {why} while the call was running; begin it again with another"

    def check(self) -> None:
        """Raise UnauthenticatedError if a call that runs may not go on."""
        if not self.is_valid:
            raise UnauthenticatedError(self.ended)
