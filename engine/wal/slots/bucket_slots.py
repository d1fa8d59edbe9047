"""Slots as objects of a bucket: ``log/00000000000000000042``. Their chunks are beside the log, in ``chunks/``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...bucket import Bucket, hurried
from .slot import Slot

LOG = "log/"
CHUNKS = "chunks/"
_NAME = re.compile(r"\d{20}")


class BucketSlots:
    """The slots of a log as objects of a bucket: see ``SlotStore``. Objects with other names are ignored."""

    def __init__(self, bucket: Bucket, home: str = "", attempt_seconds: float | None = None) -> None:
        """The objects' names begin with ``home``, which is empty or ends with a slash. ``attempt_seconds``: one attempt
        to make a slot takes not much longer; whoever makes slots repeats it."""
        self._bucket = bucket
        self._hurried = bucket if attempt_seconds is None else hurried(bucket, attempt_seconds)
        self._home = home

    def name(self, number: int) -> str:
        """Return the name of a slot's object."""
        return f"{self._home}{LOG}{number:020d}"

    def create(self, number: int, content: bytes) -> bool:
        return self._hurried.create(self.name(number), content)

    def read(self, number: int, is_patient: bool = True) -> bytes | None:
        try:
            return (self._bucket if is_patient else self._hurried).get(self.name(number))
        except FileNotFoundError:
            return None

    def numbers(self) -> list[int]:
        return self._numbers(0)

    def end(self, after: int = 0) -> int:
        return max(self._numbers(after), default=0)

    def _numbers(self, after: int) -> list[int]:
        prefix = self._home + LOG
        found = self._bucket.list(prefix, self.name(after)) if after else self._bucket.list(prefix)
        names = (name.removeprefix(prefix) for name, _ in found)
        return sorted(int(name) for name in names if _NAME.fullmatch(name))

    def delete(self, numbers: Iterable[int]) -> None:
        self._bucket.delete([self.name(number) for number in numbers])

    def put_chunk(self, name: str, content: bytes) -> None:
        self._bucket.put(f"{self._home}{CHUNKS}{name}", content)

    def read_chunk(self, slot: Slot, index: int) -> bytes | None:
        try:
            return self._bucket.get(f"{self._home}{CHUNKS}{slot.chunk_name(index)}")
        except FileNotFoundError:
            return None

    def delete_chunks(self, names: Iterable[str]) -> None:
        self._bucket.delete([f"{self._home}{CHUNKS}{name}" for name in names])
