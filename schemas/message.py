"""Message: the base of everything that is written as JSON.

A process meets few kinds of messages, and to build the checks of all takes a tenth of its start: so those of each kind
are built with its first instance.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import VERSION, BaseModel

_SAFE_SINCE = (2, 14)
"""Earlier versions of pydantic may fail if two threads build the checks of one model at once."""
_IS_SAFE = tuple(int(number) for number in VERSION.split(".")[:2]) >= _SAFE_SINCE

if TYPE_CHECKING:
    Message = BaseModel  # so that a message may be frozen or not
else:

    class Message(BaseModel, defer_build=_IS_SAFE):
        """A model of pydantic that is made ready when it is first used."""

        def __repr_args__(self) -> Iterator[tuple[str, Any]]:
            """Yield the fields that have not their default, so that what is printed is short."""
            fields = type(self).model_fields
            for name, value in super().__repr_args__():
                field = fields.get(name or "")
                if field is None or field.is_required() or value != field.get_default(call_default_factory=True):
                    yield name, value


def new_list() -> list[Any]:
    """Return an empty list, as the ``default_factory`` of a message's field. Not ``list`` itself: pydantic asks for a
    factory's signature, and that of a builtin takes Python longer than all else in a first message."""
    return []


def new_dict() -> dict[Any, Any]:
    """Return an empty dict, as the ``default_factory`` of a message's field: see ``new_list``."""
    return {}
