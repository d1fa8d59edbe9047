"""Slots as objects of a bucket: ``log/00000000000000000042``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...bucket import Bucket, hurried

_NAME = re.compile(r"\d{20}")


class BucketSlots:
    """See ``SlotStore``. Objects with other names are ignored."""

    def __init__(self, bucket: Bucket, prefix: str = "log/", attempt_seconds: float | None = None) -> None:
        """``attempt_seconds``: one attempt to make a slot takes not much longer; whoever makes slots repeats it."""
        self._bucket = bucket
        self._hurried = bucket if attempt_seconds is None else hurried(bucket, attempt_seconds)
        self._prefix = prefix

    def name(self, number: int) -> str:
        """Return the name of a slot's object."""
        return f"{self._prefix}{number:020d}"

    def create(self, number: int, content: bytes) -> bool:
        return self._hurried.create(self.name(number), content)

    def read(self, number: int, is_patient: bool = True) -> bytes | None:
        try:
            return (self._bucket if is_patient else self._hurried).get(self.name(number))
        except FileNotFoundError:
            return None

    def numbers(self) -> list[int]:
        names = (name.removeprefix(self._prefix) for name, _ in self._bucket.list(self._prefix))
        return sorted(int(name) for name in names if _NAME.fullmatch(name))

    def end(self) -> int:
        return max(self.numbers(), default=0)

    def delete(self, numbers: Iterable[int]) -> None:
        self._bucket.delete([self.name(number) for number in numbers])
