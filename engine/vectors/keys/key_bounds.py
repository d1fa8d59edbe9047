"""Overlaps of key ranges: what is read without a merge, and what must be merged."""

from collections.abc import Sequence

KeyBounds = tuple[bytes, bytes]
"""The least key and the greatest."""


def overlapping(ranges: Sequence[KeyBounds]) -> list[list[int]]:
    """Return the numbers of ranges of encoded keys in clusters that do not overlap, both in the order of their least
    keys."""
    clusters: list[list[int]] = []
    end = b""
    for number in sorted(range(len(ranges)), key=lambda number: ranges[number]):
        least, greatest = ranges[number]
        if clusters and least <= end:
            clusters[-1].append(number)
        else:
            clusters.append([number])
        end = max(end, greatest)
    return clusters
