"""The ranges of keys that a mirrored table has tablets for, and steps that add and drop them at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

Key = tuple[Any, ...]
Ends = tuple[Key | None, Key | None]
"""Lower, which is in the range, and upper, which is not; None is no end."""


@dataclass(frozen=True)
class Ranges:
    """All ranges, none of which overlap."""

    ends: tuple[Ends, ...] = ((None, None),)
    is_ranged: bool = False
    """A table without a range level becomes one when it is split first; only then ranges can come and go."""

    def holds(self, key: Key) -> bool:
        """Whether a tablet takes rows of this key."""
        return any(within(key, ends) for ends in self.ends)

    def around(self, key: Key) -> Ends:
        """Return the range that a key lies in."""
        return next(ends for ends in self.ends if within(key, ends))

    def split(self, at: Key) -> Ranges | None:
        """Return the ranges with the one cut that ``at`` lies in; None when it lies in none, or on the end of one."""
        found = next((ends for ends in self.ends if within(at, ends) and at != ends[0]), None)
        if found is None:
            return None
        kept = [ends for ends in self.ends if ends != found]
        return Ranges((*kept, (found[0], at), (at, found[1])), True)

    def draw(self, random: Random, keys: Sequence[Key]) -> tuple[str, Ends, Ranges] | None:
        """Return the name and the ends of a step that may be taken, and what it leaves; None when none was found."""
        if not self.is_ranged:
            return None
        if self.ends and random.random() < 0.4:
            gone = random.choice(self.ends)
            return "drop_range_partition", gone, Ranges(tuple(ends for ends in self.ends if ends != gone), True)
        for _ in range(10):
            new = (random.choice([None, *keys]), random.choice([None, *keys]))
            if _below(new[0], new[1]) and not any(_overlap(new, ends) for ends in self.ends):
                return "add_range_partition", new, Ranges((*self.ends, new), True)
        return None


UNRANGED = Ranges()
"""Those of a table without a range level."""


def within(key: Key, ends: Ends) -> bool:
    """Whether a key lies in a range."""
    lower, upper = ends
    return (lower is None or lower <= key) and (upper is None or key < upper)


def _below(lower: Key | None, upper: Key | None) -> bool:
    return lower is None or upper is None or lower < upper


def _overlap(one: Ends, other: Ends) -> bool:
    return _below(one[0], other[1]) and _below(other[0], one[1])
