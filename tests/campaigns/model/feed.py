"""What the change feed must give, from the model's versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .oracle import Key, Oracle, Row
from .predicates import Filter


@dataclass(frozen=True)
class Change:
    """One row of a feed. ``row`` is what the filter sees."""

    key: Key
    op: str
    timestamp: int
    row: Row
    before: Row | None

    def cells(self, columns: tuple[str, ...], with_before: bool) -> list:
        """Return the cells of the feed's row."""
        earlier = self.before or {}
        extra = [earlier.get(name) for name in columns] if with_before else []
        return [self.op, self.timestamp, *(self.row[name] for name in columns), *extra]


def feed(oracle: Oracle, since: int, until: int, every: bool, where: Filter | None = None) -> list[Change]:
    """Return the changes with ``since`` < timestamp <= ``until``, by key, then by timestamp."""
    found = (change for key in sorted(oracle.versions) for change in _of_key(oracle, key, since, until, every))
    return [change for change in found if where is None or where.holds(change.row) is True]


def _of_key(oracle: Oracle, key: Key, since: int, until: int, every: bool) -> Iterator[Change]:
    states = _states(oracle, key)
    versions = [(timestamp, row) for timestamp, row, _ in states]
    inside = [state for state in states if since < state[0] <= until]
    for timestamp, after, has_expired in inside if every else inside[-1:]:
        last = next((row for committed, row in reversed(versions) if committed < timestamp), None)
        before = last if every else next((row for committed, row in reversed(versions) if committed <= since), None)
        if before is None and after is None:
            continue
        end = "expire" if has_expired else "delete"
        op = "insert" if before is None else end if after is None else "update"
        shown = last if after is None else after
        assert shown is not None, "a key dies once"
        yield Change(key, op, timestamp, shown, before)


def _states(oracle: Oracle, key: Key) -> list[tuple[int, Row | None, bool]]:
    """Return the states of a key with the moments from which they hold, and whether its row has expired then."""
    versions = oracle.versions[key]
    states: list[tuple[int, Row | None, bool]] = []
    for number, (timestamp, row) in enumerate(versions):
        end = oracle.schema.end(row)
        if end is None or end > timestamp:
            states.append((timestamp, row, False))
        elif states and states[-1][1] is not None:
            states.append((timestamp, None, True))
        following = versions[number + 1][0] if number + 1 < len(versions) else None
        if end is not None and timestamp < end and (following is None or end < following):
            states.append((end, None, True))
    return [state for at, state in enumerate(states) if state[1] is not None or (at and states[at - 1][1] is not None)]


def replayed(state: dict[Key, Row], changes: list[Change]) -> dict[Key, Row]:
    """Return ``state`` as ``changes`` leave it."""
    result = dict(state)
    for change in changes:
        if change.op in ("delete", "expire"):
            del result[change.key]
        else:
            result[change.key] = change.row
    return result
