"""The source of the key of an encrypted store, and of the chance from which keys and nonces are made."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ....schemas.errors import InvalidArgumentError
from ....schemas.store.store_key import KEY_BYTES, StoreKey
from ..private_file import read_private

FILE_VARIABLE = "NYALA_KEY_FILE"
COMMAND_VARIABLE = "NYALA_KEY_COMMAND"
_TEXT_BYTES_MAX = 4096
_COMMAND_SECONDS_MAX = 60

RandomBytes = Callable[[int], bytes]
random_bytes: RandomBytes = os.urandom
"""Where keys and nonces come from, unless a test gives others."""


def new_key() -> StoreKey:
    """Return a random key for an encrypted store."""
    return StoreKey(random_bytes(KEY_BYTES))


@dataclass(frozen=True, slots=True)
class KeySource:
    """The source of an encrypted store's key: a file, a shell command that prints it, or the key. If none is given, the
    environment names one."""

    file: str | None = None
    command: str | None = None
    key: StoreKey | None = field(default=None, repr=False)

    def named(self, environment: Mapping[str, str] = os.environ) -> KeySource:
        """Return what is given, or what the environment names."""
        if self != NO_KEY:
            return self
        return KeySource(environment.get(FILE_VARIABLE) or None, environment.get(COMMAND_VARIABLE) or None)

    def read_for_new(self, environment: Mapping[str, str] = os.environ) -> StoreKey | None:
        """Return the key of a new store: as ``read``, but a variable that is set and empty does not mean no key.

        Raises:
            InvalidArgumentError: as ``read``, or there is such a variable, and nothing else names a key.
        """
        key = self.read(environment)
        empty = [name for name in (FILE_VARIABLE, COMMAND_VARIABLE) if name in environment and not environment[name]]
        if key is None and empty:
            raise InvalidArgumentError(
                f"{empty[0]} is set but empty, so a new store would not be encrypted: give it a value, or unset it"
            )
        return key

    def read(self, environment: Mapping[str, str] = os.environ) -> StoreKey | None:
        """Return the key; None if nothing names one.

        Raises:
            InvalidArgumentError: several are given, there is no key at that place, or others can read its file.
        """
        given = self.named(environment)
        if sum(each is not None for each in (given.file, given.command, given.key)) > 1:
            raise InvalidArgumentError("a key, a key file and a key command exclude one another: give one of them")
        if given.file is not None:
            return _from_file(given.file)
        return given.key if given.command is None else _from_command(given.command)


NO_KEY = KeySource()
"""Only what the environment says."""


def _from_file(path: str) -> StoreKey:
    try:
        text = read_private(path, _TEXT_BYTES_MAX)
    except OSError as error:
        raise InvalidArgumentError(f"the key file {path} cannot be read: {error.strerror}") from None
    return StoreKey.from_text(text, f"the content of {path}")


def _from_command(command: str) -> StoreKey:
    try:
        done = subprocess.run(
            command,
            shell=True,
            check=True,
            stdin=subprocess.DEVNULL,  # what stands on ours may be for the server
            stdout=subprocess.PIPE,
            timeout=_COMMAND_SECONDS_MAX,
        )
    except (OSError, subprocess.SubprocessError) as error:
        why = f"exit code {error.returncode}" if isinstance(error, subprocess.CalledProcessError) else "no answer"
        raise InvalidArgumentError(f"the key command failed: {why}; run it by hand to see the cause") from None
    return StoreKey.from_text(done.stdout, "the output of the key command")
