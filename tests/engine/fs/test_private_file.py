"""Files with a secret: the rule of ssh."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nyala.engine.fs.private_file import read_private
from nyala.schemas.errors import InvalidArgumentError


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(b"0123456789")
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_for_this_user_alone_is_read(secret: Path, mode: int) -> None:
    secret.chmod(mode)
    assert read_private(secret) == b"0123456789" and read_private(secret, 4) == b"0123"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o601])
def test_a_file_that_others_can_read_is_refused(secret: Path, mode: int) -> None:
    secret.chmod(mode)
    with pytest.raises(InvalidArgumentError, match=f"other users can read the key file {secret}; run: chmod 600"):
        read_private(secret)


def test_a_file_of_another_user_is_read(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container mounts secrets as files of root, for a group."""
    secret.chmod(0o440)
    monkeypatch.setattr(os, "geteuid", lambda: secret.stat().st_uid + 1)
    assert read_private(secret) == b"0123456789"
