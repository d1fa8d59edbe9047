"""A manifest that is replaced while others are deleted is deleted later."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from nyala.engine.home.manifests import ManifestInBucket


class Bucket:
    """Notes what is put, and what is deleted."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def put(self, name: str, document: bytes) -> None:
        self.names.add(name)

    def delete(self, names: list[str]) -> None:
        self.names -= set(names)


def test_a_manifest_that_is_replaced_meanwhile_is_deleted_later() -> None:
    bucket, log = Bucket(), cast(Any, SimpleNamespace(commit_manifest=lambda *_: None))
    place = ManifestInBucket(cast(Any, bucket), "s/", 1, "", log, cast(Any, None), lambda name: False)

    class Noted(list[str]):
        """Another thread deletes, if it may, while a name is being noted."""

        def append(self, name: str) -> None:
            deleting.start()
            deleting.join(0.3)
            super().append(name)

    deleting = threading.Thread(target=place.remove_replaced)
    for number in range(3):
        place.write(b"document")
        if number == 2:
            place._replaced = Noted(place._replaced)
        place.install(0)
    deleting.join(60)
    place.remove_replaced()
    assert bucket.names == {"s/manifests/1-3"}


def test_pinned_manifests_stay_until_they_are_free() -> None:
    bucket, log = Bucket(), cast(Any, SimpleNamespace(commit_manifest=lambda *_: None))
    pinned = {"1-1"}
    place = ManifestInBucket(cast(Any, bucket), "s/", 1, "", log, cast(Any, None), pinned.__contains__)
    for _ in range(3):
        place.write(b"document")
        place.install(0)
    place.remove_replaced()
    assert bucket.names == {"s/manifests/1-1", "s/manifests/1-3"} and not place.has_replaced()
    pinned.clear()
    assert place.has_replaced()
    place.remove_replaced()
    assert bucket.names == {"s/manifests/1-3"}
