"""A bucket copies an object of any size, though S3 does so by one request only up to a limit."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from moto.s3.exceptions import S3ClientError
from moto.s3.models import S3Backend

from nyala.engine.bucket import PatientBucket, bucket_of, obstore
from nyala.schemas.errors import UnavailableError
from tests.doubles.faulty_bucket import impatience
from tests.doubles.s3_server import url_of

LIMIT = 1 << 20
PART = 5 << 20
"""S3 takes no smaller one, but the last."""
LARGE = Random(1).randbytes(2 * PART + 77)


@pytest.fixture
def bucket(address: str, keys: None, monkeypatch: pytest.MonkeyPatch) -> PatientBucket:
    """One of a server that copies little, as S3 does."""
    copy_object = S3Backend.copy_object

    def limited(backend: S3Backend, src_key: Any, *args: Any, **named: Any) -> None:
        if src_key.size > LIMIT:
            why = "The specified copy source is larger than the maximum allowable size for a copy source"
            raise S3ClientError("InvalidRequest", f"{why}: {LIMIT}")
        copy_object(backend, src_key, *args, **named)

    monkeypatch.setattr(S3Backend, "copy_object", limited)
    monkeypatch.setattr(obstore, "_COPY_BYTES_MAX", LIMIT)
    monkeypatch.setattr(obstore, "_PART_BYTES", PART)
    bucket = bucket_of(url_of(address, "copying"))
    assert isinstance(bucket, PatientBucket)
    bucket.patience = impatience(2)
    return bucket


def test_an_object_that_the_store_does_not_copy_is_copied(bucket: PatientBucket) -> None:
    for name, content in (("small", LARGE[:LIMIT]), ("large", LARGE)):
        bucket.put(name, content)
        bucket.copy(name, f"copies/{name}")
        assert bucket.get(f"copies/{name}") == content
    with pytest.raises(FileNotFoundError):
        bucket.copy("gone", "copies/gone")


def test_a_copy_is_whole_or_not_there(bucket: PatientBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("large", LARGE)
    objects: Any = bucket.objects
    get_ranges, asked = objects.get_ranges, []

    def broken(name: str, ranges: list[tuple[int, int]]) -> list[bytes]:
        asked.append(ranges)
        if len(asked) > 1:
            raise OSError("the connection broke")
        return get_ranges(name, ranges)

    monkeypatch.setattr(objects, "get_ranges", broken)
    with pytest.raises(UnavailableError, match="could not copy large"):
        bucket.copy("large", "broken")
    assert len(asked) == 3, "the first attempt has read a part"
    with pytest.raises(FileNotFoundError):
        bucket.get("broken")


def test_no_object_has_too_many_parts() -> None:
    assert obstore._part_bytes(10 << 20) == 8 << 20
    size = 300 << 30
    assert size / obstore._part_bytes(size) <= 10_000
