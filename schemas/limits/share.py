"""Share: how much of a limit for all users together one of them may take.

A user may have no more than stays free for the others: half of the limit if nobody else has any, less the more others
have. A sixteenth of the limit may always be had, while there is any left. Without authentication there are no users,
and so no shares.
"""

from __future__ import annotations

from collections.abc import Mapping

_LEAST = 16
"""The part of a limit that a user may always have, as a divisor."""


def is_over_share(limit: int, total: int, own: int) -> bool:
    """Whether a user would have too much of a limit, with ``own`` of a ``total``."""
    return own > max(limit - total, limit // _LEAST, 1)


def most_greedy(held: Mapping[str, int]) -> str:
    """Return the user with the most of a limit, of at least one: where something must go, it is this user's."""
    return max(held, key=lambda user: held[user])
