"""A played S3, and the keys that it is asked with."""

from collections.abc import Iterator

import pytest

from tests.doubles.s3_server import KEYS, s3_server


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a server that plays S3."""
    with s3_server() as address:
        yield address


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in KEYS.items():
        monkeypatch.setenv(key, value)
