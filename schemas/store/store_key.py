"""The key of an encrypted store, which the user has and the disk has not. Its text is 64 hexadecimal digits."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from ..errors import InvalidArgumentError

KEY_BYTES = 32
_TEXT = re.compile(r"\s*([0-9a-fA-F]{64})\s*")
_ID_OF = b"nyala store key id\0"


@dataclass(frozen=True, slots=True)
class StoreKey:
    """The key of an encrypted store, as the user gives it to the store: 256 bits. No text form but ``text`` shows
    it."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        assert len(self.secret) == KEY_BYTES, "callers check what users give"

    @property
    def id(self) -> str:
        """Eight hexadecimal digits that tell keys apart, and nothing about them."""
        return hashlib.sha256(_ID_OF + self.secret).hexdigest()[:8]

    @property
    def text(self) -> str:
        """What stands in a key file."""
        return self.secret.hex() + "\n"

    @classmethod
    def of(cls, given: object) -> StoreKey:
        """Return the key of 32 bytes, or of 64 hexadecimal digits. An error does not show it.

        Raises:
            InvalidArgumentError: it is neither.
        """
        if isinstance(given, StoreKey):
            return given
        if isinstance(given, bytes) and len(given) == KEY_BYTES:
            return cls(given)
        return cls.from_text(given if isinstance(given, bytes | str) else "", "the key that was given")

    @classmethod
    def from_text(cls, text: bytes | str, what: str) -> StoreKey:
        """Return the key of 64 hexadecimal digits. An error calls the text ``what`` and does not show it.

        32 bytes are no key here: an error message of a command has as many.

        Raises:
            InvalidArgumentError: it is something else.
        """
        match = _TEXT.fullmatch(text.decode("ascii", "replace") if isinstance(text, bytes) else text)
        if match is None:
            raise InvalidArgumentError(
                f"{what} is not a key: it must be 64 hexadecimal digits, as `nyala key create` writes"
            )
        return cls(bytes.fromhex(match[1]))
