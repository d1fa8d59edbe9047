"""PinVerbs: the methods of a store that keep snapshots, for readers outside or until dropped; see ``verbs``."""

from __future__ import annotations

from typing import Protocol

from ..store.direct import PinName, PinnedTable, PinSnapshot
from ..store.grants import Privilege
from ..store.pins import CreatePin, KeptPin, KeptPins, OpenedPin, OpenPin
from .need import BY_CONTENT, on_table, on_table_of_id
from .verb import ANSWER, Kind, verb

_READ = "files cannot be read directly"
_KEPT = "snapshots cannot be kept"


class PinVerbs(Protocol):
    """The verbs of pins. Every method may raise ``StoreError``."""

    @verb(PinSnapshot, PinnedTable, kind=Kind.TASK, alone=_READ, needs=on_table(Privilege.READ))
    def pin_snapshot(self, asked: PinSnapshot) -> PinnedTable:
        """Flush a table up to a snapshot and keep its files for readers outside, for a renewable time."""
        return ANSWER

    @verb(PinName, alone=_READ, needs=on_table_of_id(Privilege.READ))
    def renew_pin(self, pin_id: str) -> None:
        """Keep the files of a pin for the same time again."""
        return ANSWER

    @verb(PinName, alone=_READ, needs=on_table_of_id(Privilege.READ))
    def release_pin(self, pin_id: str) -> None:
        """Release the files of a pin. NOT_FOUND if they are gone already, as a repeated call may find."""
        return ANSWER

    @verb(CreatePin, KeptPin, kind=Kind.TASK, alone=_KEPT, needs=BY_CONTENT)
    def create_pin(self, asked: CreatePin) -> KeptPin:
        """Flush a table, or all of them, up to a snapshot, and keep its files until the pin is dropped."""
        return ANSWER

    @verb(None, KeptPins, member="pins", is_read=True, alone=_KEPT, needs=BY_CONTENT)
    def pins(self) -> list[KeptPin]:
        """Return the pins that are kept, of the tables that the caller may read, oldest first."""
        return ANSWER

    @verb(OpenPin, OpenedPin, is_read=True, alone=_KEPT, needs=on_table_of_id(Privilege.READ))
    def open_pin(self, asked: OpenPin) -> OpenedPin:
        """Return what is needed to read a table as a kept pin keeps it."""
        return ANSWER

    @verb(PinName, alone=_KEPT, needs=on_table_of_id(Privilege.MAINTAIN))
    def drop_pin(self, pin_id: str) -> None:
        """Drop a kept pin. NOT_FOUND if it is gone already, as a repeated call may find."""
        return ANSWER
