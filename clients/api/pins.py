"""The names of kept pins."""

from __future__ import annotations

from contextlib import suppress

from ...schemas.errors import PermissionDeniedError
from ...schemas.service import StoreService


def pin_id_of(store: StoreService, pin: str) -> str:
    """Return the id of a kept pin, by its name; what is no name is taken for an id."""
    with suppress(PermissionDeniedError):  # who may not see all pins knows the id of its own
        return next((each.pin_id for each in store.pins() if each.name == pin), pin)
    return pin
