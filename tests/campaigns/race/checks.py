"""What must hold of every scan of the race's tables. Each check raises ``Violation`` with what it has seen."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.campaigns.race.tables import EVENTS, FIXED, FRESH, FRESH_FROM, KEPT, KEY, SHARED, gathered

State = dict[tuple[int, int], tuple]


class Violation(AssertionError):
    """The store has broken a promise."""


def require(condition: object, why: str) -> None:
    """Raise ``Violation`` unless the condition holds."""
    if not condition:
        raise Violation(why)


def in_key_order(rows: pa.Table, ordered: bool) -> pa.Table:
    """Return rows by their keys; they must be so already when the scan was ``ordered``."""
    by_key = rows.sort_by([(name, "ascending") for name in KEY]).combine_chunks()
    require(not ordered or rows.combine_chunks().equals(by_key), "an ordered scan is not in the order of the keys")
    return by_key


def check_no_duplicates(rows: pa.Table) -> None:
    """No key may be there twice. ``rows`` are in key order."""
    writers, numbers = (rows[name].to_numpy() for name in KEY)
    twice = np.flatnonzero((writers[1:] == writers[:-1]) & (numbers[1:] == numbers[:-1]))
    require(
        not len(twice), f"{len(twice)} keys are there twice, such as {rows.slice(twice[0] if len(twice) else 0, 1)}"
    )


def check_events(rows: pa.Table, least: list[int]) -> list[int]:
    """Every writer's batches are there from the first on, whole, ``least`` of them or more; return how many."""
    check_no_duplicates(rows)
    writers, numbers, batches = (rows[name].to_numpy() for name in ("writer", "number", "batch"))
    wrong = np.flatnonzero(gathered(numbers) // EVENTS != batches)
    require(not len(wrong), f"{len(wrong)} events carry another batch's number")
    counts = []
    for writer, acknowledged in enumerate(least):
        found = np.bincount(batches[writers == writer])
        half = np.flatnonzero(found != EVENTS)
        require(not len(half), f"writer {writer}: batches {half[:5]} have {found[half[:5]]} of {EVENTS} rows")
        require(
            len(found) >= acknowledged, f"writer {writer}: of {acknowledged} batches of events {len(found)} are there"
        )
        counts.append(len(found))
    require(sum(counts) * EVENTS == len(rows), "there are events that nobody wrote")
    return counts


def check_state(rows: pa.Table, least: list[int]) -> list[int]:
    """Every writer's newest batch is there whole, no older than ``least``; return how many there were."""
    check_no_duplicates(rows)
    columns = {
        name: rows[name].to_numpy(zero_copy_only=False) for name in ("writer", "number", "batch", "same", "later")
    }
    return [_check_writer(writer, columns, acknowledged) for writer, acknowledged in enumerate(least)]


def _check_writer(writer: int, columns: dict[str, np.ndarray], least: int) -> int:
    mine = columns["writer"] == writer
    numbers, batches, same, later = (columns[name][mine] for name in ("number", "batch", "same", "later"))
    fixed = numbers < FRESH_FROM
    newest = set(batches[fixed].tolist())
    require(len(newest) <= 1, f"writer {writer}: batches {newest} are half there")
    count = int(newest.pop()) + 1 if newest else 0
    require(count >= least, f"writer {writer}: of {least} batches of state {count} are there")
    require(np.count_nonzero(fixed) == (FIXED if count else 0), f"writer {writer}: fixed rows are missing")
    require(np.array_equal(batches, same), f"writer {writer}: half a row of batch {count - 1} is there")
    seen = {None if value != value or value is None else int(value) for value in later[fixed].tolist()}
    before = {count - 2 if count > 1 else None}
    require(not count or seen in ({count - 1}, before), f"writer {writer}: updates {seen} beside batch {count - 1}")
    first = int(numbers[~fixed].min() - FRESH_FROM) // FRESH if count else 0
    oldest = max(0, count - 1 - KEPT)
    require(not count or first in (oldest, oldest + (count > KEPT)), f"writer {writer}: {first=} at batch {count - 1}")
    expected = np.arange(first * FRESH, count * FRESH)
    require(np.array_equal(numbers[~fixed] - FRESH_FROM, expected), f"writer {writer}: fresh rows are missing")
    require(np.array_equal(batches[~fixed], expected // FRESH), f"writer {writer}: fresh rows of other batches")
    return count


def shared_value(rows: pa.Table) -> int | None:
    """Return the one value that all shared rows have, None before the first."""
    shared = rows.filter(pc.equal(rows["writer"], -1))
    values = set(zip(shared["batch"].to_pylist(), shared["text"].to_pylist(), strict=True))
    require(len(shared) == (SHARED if values else 0), f"{len(shared)} of {SHARED} shared rows are there")
    require(len(values) <= 1, f"several writers' batches are in the shared rows: {values}")
    for value, text in values:
        require(text == str(value), f"half of a shared row: {value} and {text!r}")
        return value
    return None


def check_shared(seen: list[tuple[int, int | None]], written: list[tuple[int, int]]) -> None:
    """At each snapshot the last commit up to it was seen. Both lists hold timestamps and values."""
    commits = sorted(written)
    times = [timestamp for timestamp, _ in commits]
    require(len(set(times)) == len(times), "two commits have one timestamp")
    for snapshot, value in seen:
        place = bisect_right(times, snapshot)
        expected = commits[place - 1][1] if place else None
        require(value == expected, f"at {snapshot} the shared rows hold {value}, not {expected}")


def as_state(rows: pa.Table) -> State:
    """Return rows by key."""
    cells = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    return {row[:2]: row for row in cells}


def check_feed(before: State, after: State, feed: pa.Table, every: bool) -> None:
    """The changes between two snapshots, made to the earlier state, give the later one."""
    state = dict(before)
    rows = list(zip(*(column.to_pylist() for column in feed.columns), strict=True))
    if every:
        rows.sort(key=lambda row: row[1])
    for op, timestamp, *cells in rows:
        key = (cells[0], cells[1])
        require((op == "insert") == (key not in state), f"{op} of {key} at {timestamp}, which was {state.get(key)}")
        if op == "delete":
            del state[key]
        else:
            state[key] = tuple(cells)
    require(state == after, f"the {'changes' if every else 'net changes'} do not lead from one snapshot to the other")
    if not every:
        keys = {(row[2], row[3]) for row in rows}
        require(len(keys) == len(rows), "a key is in the net changes twice")


def check_births(before: pa.Table | None, after: pa.Table, feed: pa.Table) -> None:
    """In a table that only grows the changes are the rows that came."""
    require(set(feed["_op"].unique().to_pylist()) <= {"insert"}, "an event was changed or deleted")
    ids = [_ids(rows) for rows in (after, feed, before if before is not None else after.slice(0, 0))]
    require(np.array_equal(np.sort(ids[1]), np.setdiff1d(ids[0], ids[2])), "the changes are not the events that came")


def _ids(rows: pa.Table) -> np.ndarray:
    return rows["writer"].to_numpy().astype(np.int64) << 40 | rows["number"].to_numpy()
