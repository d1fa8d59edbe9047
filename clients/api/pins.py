"""The pins that a caller names."""

from __future__ import annotations

from contextlib import suppress

from ...schemas.errors import InvalidArgumentError, PermissionDeniedError
from ...schemas.protocol.service import StoreService
from ...schemas.store.pins import KeptPin


def pin_id_of(store: StoreService, pin: str | KeptPin) -> str:
    """Return the id of a kept pin, by the name that a user gives to a method of ``Database``; what is no name is taken
    for an id.

    Raises InvalidArgumentError if it is neither text nor a KeptPin.
    """
    if isinstance(pin, KeptPin):
        return pin.pin_id
    if not isinstance(pin, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentError(
            f"{pin!r} is not a pin: give the name of a pin, its id, or a KeptPin that create_pin or pins returned"
        )
    with suppress(PermissionDeniedError):  # an older server lists pins only to readers of all tables
        return next((each.pin_id for each in store.pins() if each.name == pin), pin)
    return pin
