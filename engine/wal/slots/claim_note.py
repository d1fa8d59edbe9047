"""The note of a claim to others, in JSON: about its holder, and whether it must stay.

A claim stops the next slot of the holder before it: that slot has the number of the claim, however late it comes. A
holder that has released the log sends no slot any more (``slot_sink``). So a claim that follows a release stops nobody,
and may be freed like any slot once another claim is in force. A claim that comes late to its number is void: there is
always a slot above. The first claim of a log stays: one that takes the log for empty, by a listing that lies, meets it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .slot import Slot, SlotKind

TTL = "ttl_seconds"
"""How long the holder may be silent."""
AFTER_RELEASE = "after_release"
"""Whether the holder before had released the log."""


def pack_note(about: Mapping[str, object], ttl_seconds: float, last: Slot | None) -> bytes:
    """Return the payload of the slot that claims a log after ``last``, its end. ``about`` tells others of the
    holder."""
    is_released = last is not None and last.header.kind is SlotKind.RELEASE
    return json.dumps({**about, TTL: ttl_seconds, **({AFTER_RELEASE: True} if is_released else {})}).encode()


def note_of(claim: Slot) -> Mapping[str, Any]:
    """Return what the slot of a claim tells of the holder; empty if that cannot be understood, or it is none."""
    if claim.header.kind is not SlotKind.CLAIM:
        return {}
    try:
        found = json.loads(bytes(claim.payload))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def is_fence(slot: Slot) -> bool:
    """Whether a slot must stay for ever: a claim that a former holder may run into."""
    return slot.header.kind is SlotKind.CLAIM and note_of(slot).get(AFTER_RELEASE) is not True
