"""Where the server is, and how tables of a dataset are named."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from dlt.common.configuration import configspec
from dlt.common.configuration.specs.base_configuration import CredentialsConfiguration
from dlt.common.destination.client import DestinationClientDwhConfiguration
from dlt.common.typing import TSecretStrValue
from dlt.common.utils import digest128

from nyala import connect
from nyala.clients.api.database import Database


def _fixed(value: str | None) -> Any:
    """Return a field that dlt fills, not a user's configuration."""
    return dataclasses.field(default=value, init=False, repr=False, compare=False)


@configspec
class NyalaCredentials(CredentialsConfiguration):
    """The address of a server, and what it asks for."""

    uri: str = None  # type: ignore[assignment]
    """``grpc://host:port``, or ``grpc+tls://host:port`` for TLS; several, separated by commas, for a standby."""
    token: TSecretStrValue | None = None
    tls_roots: str | None = None
    """The PEM file of the roots that certify the server; by default the system's."""

    def parse_native_representation(self, native_value: Any) -> None:
        """Take an address alone for credentials."""
        if not isinstance(native_value, str):
            raise ValueError(f"the address of a Nyala server is a text, not {native_value!r}")
        self.uri = native_value

    def open(self) -> Database:
        """Return the database of the server. Raises StoreError if it does not answer."""
        return connect(self.uri, token=self.token, tls_roots=self.tls_roots)

    def __str__(self) -> str:
        return str(self.uri)


@configspec
class NyalaConfiguration(DestinationClientDwhConfiguration):
    """The options of the destination."""

    destination_type: Final[str] = _fixed("nyala")  # type: ignore[misc]
    credentials: NyalaCredentials = None  # type: ignore[assignment]
    dataset_name: Final[str | None] = _fixed(None)  # type: ignore[misc]
    dataset_separator: str = "___"
    """Stands between the name of the dataset and that of the table. Without a dataset a table has its own name."""

    def fingerprint(self) -> str:
        """Return a digest of the address."""
        return digest128(self.credentials.uri) if self.credentials and self.credentials.uri else ""

    def data_location(self) -> str | None:
        """Return the address."""
        if not self.credentials or not self.credentials.uri:
            self._no_data_location("its credentials have no uri")
        return self.credentials.uri
