"""The server of a table, and what shows it who reads or writes, as options of Spark.

Options are part of plans, and Spark keeps what it knows to be secret out of everything that it shows: options and
settings whose names contain ``token``, by ``spark.redaction.regex``. Here the token is a ``SecretStr``, whose text has
none of it. It goes with the tasks, pickled. The other options name files, which each process reads itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.alias_generators import to_camel

from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.service import StoreService
from ..api.per_process import all_servers_at, server_at
from ..flight.credentials import Credentials, TokenFile
from ..flight.store import FlightStore


class ServerOptions(BaseModel, frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True):
    """The options of Spark for a server, and the credentials for it; those that are missing come from the environment
    of each process."""

    uri: str
    """The server's address, such as grpc://127.0.0.1:8815."""
    token: SecretStr | None = None
    token_file: Path | None = None
    """A file with the token, read for every call."""
    tls_roots: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    """None: the file of the certificate has its key, too."""

    @property
    def credentials(self) -> Credentials:
        """What this process shows the server.

        Raises:
            InvalidArgumentError: some options exclude each other, or need another.
        """
        if self.token is not None and self.token_file is not None:
            raise InvalidArgumentError("token and tokenFile exclude each other: keep one of them")
        if self.client_key is not None and self.client_cert is None:
            raise InvalidArgumentError("clientKey is the key of a certificate: set clientCert too")
        token = self.token.get_secret_value() if self.token else self.token_file and TokenFile(self.token_file)
        pair = self.client_cert and (self.client_cert, self.client_key or self.client_cert)
        return Credentials.of(token, self.tls_roots, pair)

    def server(self, patient: bool = True) -> FlightStore:
        """Return this process's connection to the server. Raises as ``server_at``."""
        return server_at(self.uri, patient, self.credentials)

    def all_servers(self) -> StoreService:
        """Return this process's connection to all servers that share their tables. Raises as ``all_servers_at``."""
        return all_servers_at(self.uri, credentials=self.credentials)

    def at(self, location: str) -> FlightStore:
        """Return this process's connection to another of the servers."""
        return server_at(location, credentials=self.credentials)


class ServerKeywords(TypedDict, total=False):
    """The options of ``ServerOptions`` but the address, as keywords of the functions for Spark."""

    token: str
    tokenFile: str
    tlsRoots: str
    clientCert: str
    clientKey: str


def keywords_of(credentials: Credentials | None) -> ServerKeywords:
    """Return credentials as options of Spark; a function that returns the token is asked for it now."""
    found = ServerKeywords()
    if credentials is None:
        return found
    if isinstance(credentials.token, TokenFile):
        found["tokenFile"] = str(credentials.token.path)
    elif credentials.token is not None:
        found["token"] = credentials.token if isinstance(credentials.token, str) else credentials.token()
    if credentials.tls_roots is not None:
        found["tlsRoots"] = str(credentials.tls_roots)
    if credentials.client_cert is not None:
        found["clientCert"] = str(credentials.client_cert)
    if credentials.client_key is not None:
        found["clientKey"] = str(credentials.client_key)
    return found


def server_of(uri: str, given: Mapping[str, Any]) -> ServerOptions:
    """Return the server at ``uri`` for Spark, with the credentials among options of any case.

    Raises:
        InvalidArgumentError: one is invalid.
    """
    written = {field.alias.lower(): field.alias for field in ServerOptions.model_fields.values() if field.alias}
    named = {written[low]: value for name, value in given.items() if (low := name.lower()) in written}
    try:
        return ServerOptions.model_validate(named | {"uri": uri})
    except ValidationError as error:
        wrong = ", ".join(str(each["loc"][0]) for each in error.errors())  # without the values
        raise InvalidArgumentError(f"the values of these options are not text: {wrong}") from None
