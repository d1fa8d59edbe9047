"""Identity: who calls."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from ...schemas.errors import UnauthenticatedError


@dataclass(slots=True, weakref_slot=True, eq=False)
class Identity:
    """A user, as long as what proves it is valid. Shared by all calls with the same proof."""

    user: str
    roles: frozenset[str] = frozenset()
    expires: float = math.inf
    """In seconds since 1970."""
    source: str = ""
    """The id of the token, or how else the user was identified; never a secret."""
    is_revoked: bool = False

    @property
    def is_valid(self) -> bool:
        """Whether the user may go on: the proof has neither expired nor been revoked."""
        return not self.is_revoked and time.time() < self.expires

    @property
    def ended(self) -> str:
        """Why a call that runs may not go on, if it may not."""
        why = "was revoked" if self.is_revoked else "has expired"
        return f"the token {why} while the call was running; begin it again with another"

    def check(self) -> None:
        """Raise UnauthenticatedError if a call that runs may not go on."""
        if not self.is_valid:
            raise UnauthenticatedError(self.ended)
