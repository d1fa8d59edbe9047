"""Checks a whole log of slots that nobody is writing to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ....schemas.errors import CorruptionError
from ...bucket.at_once import in_order
from .chain import Chain
from .claim_note import is_fence
from .payload import whole
from .slot import Slot, SlotKind, decode_slot, path_of
from .slot_store import SlotStore


@dataclass(slots=True)
class SlotReport:
    """What is in a log of slots. ``claims`` are those that are needed or must stay, ``leftovers`` slots that a holder
    did not come to delete: they may be deleted."""

    end: int = 0
    needed_slot: int = 1
    records: int = 0
    claims: list[int] = field(default_factory=list)
    leftovers: list[int] = field(default_factory=list)
    problems: list[CorruptionError] = field(default_factory=list)


def check_slots(slots: SlotStore, store_uuid: bytes | None = None) -> SlotReport:
    """Read every slot of a log. From the one that the newest needs on there is no gap, one chain of checksums, epochs,
    record numbers and timestamps rise; no timestamp passes the ceiling of the slot before. Before that, only claims
    matter.

    Raises UnavailableError.
    """
    report = SlotReport()
    numbers = slots.numbers()
    if not numbers:
        return report
    report.end = numbers[-1]
    try:
        newest = _decoded(report.end, slots.read(report.end))
    except CorruptionError as error:
        report.problems.append(error)
        return report
    report.needed_slot = newest.header.needed_slot
    _note_earlier(slots, numbers, newest.header.epoch, report)
    _follow(slots, Chain(store_uuid or newest.header.store_uuid), report)
    return report


def leftovers_before(slots: SlotStore, needed_slot: int, epoch: int) -> list[int]:
    """Return the ``leftovers`` before a slot that is or was needed, of a log that somebody may be writing to since the
    claim ``epoch``. What cannot be decoded is none. Raises UnavailableError."""
    report = SlotReport(needed_slot=needed_slot)
    _note_earlier(slots, slots.numbers(), epoch, report)
    return report.leftovers


def _note_earlier(slots: SlotStore, numbers: Sequence[int], epoch: int, report: SlotReport) -> None:
    for number, content in _contents(slots, [each for each in numbers if each < report.needed_slot]):
        try:
            stays = number == epoch or is_fence(_decoded(number, content))
        except CorruptionError as error:
            report.problems.append(error)
        else:
            (report.claims if stays else report.leftovers).append(number)


def _follow(slots: SlotStore, chain: Chain, report: SlotReport) -> None:
    for number, content in _contents(slots, range(report.needed_slot, report.end + 1)):
        last = chain.last
        try:
            slot = _decoded(number, content)
            chain.follow(slot)
            report.problems += _time_faults(last, whole(slots, slot))
        except CorruptionError as error:
            report.problems.append(error)
            return
        report.records += slot.header.count
        if slot.header.kind is SlotKind.CLAIM:
            report.claims.append(number)


def _time_faults(last: Slot | None, slot: Slot) -> Iterator[CorruptionError]:
    before = last.header.safe if last else 0
    for record in slot.records():
        if record.timestamp <= before:
            why = f"record {record.lsn} has timestamp {record.timestamp}, which does not exceed the earlier {before}"
            yield CorruptionError(path_of(slot.header.number), 0, why)
        if last and record.timestamp > last.header.ceiling:
            why = f"record {record.lsn} has timestamp {record.timestamp}, above the ceiling {last.header.ceiling}"
            yield CorruptionError(path_of(slot.header.number), 0, why)
        before = record.timestamp
    if slot.header.safe < before:
        why = f"it says that its records end at timestamp {slot.header.safe}, but one has {before}"
        yield CorruptionError(path_of(slot.header.number), 0, why)


def _contents(slots: SlotStore, numbers: Sequence[int]) -> Iterator[tuple[int, bytes | None]]:
    return zip(numbers, in_order(slots.read, numbers), strict=True)


def _decoded(number: int, content: bytes | None) -> Slot:
    if content is None:
        raise CorruptionError(path_of(number), 0, "this slot of the log is missing")
    return decode_slot(number, content)
