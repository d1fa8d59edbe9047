"""``nyala.connect``: a database behind Arrow Flight."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...schemas.errors import InvalidArgumentError, UnavailableError
from ...schemas.protocol.service import StoreService
from ...schemas.store.placement import Placement
from ..flight.credentials import TLS, ClientCert, Credentials
from ..flight.holder_client import Noted
from ..flight.server_wait import RefusedError
from ..flight.store import FlightStore, Given
from ..flight.token import Token
from .database import Database

if TYPE_CHECKING:
    from ..cluster.store import PlacedStore

_NOTE_SECONDS = 1.0
"""How long to wait for a bucket while others may say who has the store."""


def connect(
    uri: Given | None = None,
    *,
    placement: Placement | Mapping[str, Any] | str | Path | None = None,
    retries: bool = True,
    token: Token | None = None,
    tls_roots: str | Path | None = None,
    client_cert: ClientCert | None = None,
    traces: bool = False,
    url: Given | None = None,
    name: str | None = None,
) -> Database:
    """Return the database that the server at ``uri`` serves, such as ``grpc://127.0.0.1:8815`` or ``127.0.0.1:8815``.

    Several locations, as in ``grpc://m1:8815,m2:8815`` or as a list, are those of processes of which one has the store.
    The client finds it, and follows the store to the next one: see docs/failover.md.

    If the server shares its tables with others, the database covers them all: the client asks the server for the
    placement. ``placement`` gives it directly, as the path of its file or as its content: see docs/servers.md. If the
    server consists of several processes, the client asks each of them directly where it can.

    The URL of a bucket, as in ``connect("s3://bucket/root", name="a")``, and the ``name`` of a store there lead to the
    process that has it now, and to the next ones. This needs the extra ``bucket`` and credentials for the bucket.
    Whoever may write the bucket says where that is: with a token, ``tls_roots`` must certify the servers.

    With ``retries``, a write whose answer is lost because the server restarted is sent again for some seconds, to
    whichever process has the store then. Its batches are numbered, so that none is applied twice.

    ``token`` shows a server that asks for it who calls; a function is called for every call, and returns the current
    token. ``grpc+tls://`` encrypts: ``tls_roots`` is the PEM file of the roots that certify the server, by default the
    system's, and ``client_cert`` the PEM files of this client's certificate and key, as a pair, or one file with both.
    What is not given comes from the environment: ``NYALA_TOKEN`` or ``NYALA_TOKEN_FILE``, ``NYALA_TLS_ROOTS``,
    ``NYALA_CLIENT_CERT``, ``NYALA_CLIENT_KEY``. All servers of a placement get the same: see docs/security.md.

    With ``traces``, requests continue the span of OpenTelemetry that is current where they are made: see
    docs/tracing.md.

    ``url`` is an older name of ``uri``.

    Raises:
        UnauthenticatedError: the server does not accept the token.
        UnavailableError: no server answers there.
        InvalidArgumentError: another store than ``name`` is there; ``uri`` or the placement is invalid, or neither or
            both are given; or ``traces`` lacks its package.
    """
    uri = url if uri is None else uri
    if (uri is None) == (placement is None):
        raise InvalidArgumentError("connect needs the uri of a server or a placement")
    credentials = Credentials.of(token, tls_roots, client_cert, traces)
    if uri is None:
        return Database(store_at_placement(_read(placement), retries, credentials))
    if name is None:
        return Database(store_of(connection_to(uri, retries, credentials), retries))
    return Database(store_of(_server_of_bucket(uri, name, retries, credentials), retries))


def _server_of_bucket(uri: Given, name: str, retries: bool, credentials: Credentials) -> FlightStore:
    """Return the connection to the process that has the store ``name`` in a bucket.

    Who writes the bucket is not who may see tokens: roots that the user gave must certify a server that it names.
    """
    if not isinstance(uri, str) or uri.startswith("grpc"):
        raise InvalidArgumentError(
            "name= selects a store in a bucket: give the URL of the bucket as uri, such as s3://bucket/root"
        )
    if credentials.is_secret and credentials.tls_roots is None:
        raise InvalidArgumentError(
            "the bucket decides which servers get your credentials: give tls_roots that certify your servers, give the "
            "locations of the servers instead of the bucket, or leave out the token and the client certificate"
        )
    from ..offline_jobs.noted import noted_locations

    def noted(seconds: float | None = _NOTE_SECONDS) -> list[str]:
        found = noted_locations(uri, name, seconds)
        return [each for each in found if not credentials.is_secret or each.startswith(TLS)]

    if not (locations := noted(None)):
        over = " with TLS" if credentials.is_secret else ""
        raise UnavailableError(
            f"no server of the store {name} has recorded its location{over} in {uri}: start a server"
        )
    return connection_to(locations, retries, credentials, noted, name)


def connection_to(
    uri: Given,
    retries: bool,
    credentials: Credentials,
    noted: Noted | None = None,
    name: str | None = None,
    patient: bool = False,
) -> FlightStore:
    """Return the connection to a server for the user's ``connect``. If nobody has the store, but somebody waits to have
    it, wait as well; with ``patient``, wait for a server that does not answer, too. Raises as ``connect``."""
    try:
        return FlightStore(uri, retries, credentials=credentials, noted=noted, name=name)
    except UnavailableError as error:
        if retries and (patient or error.locations is not None):
            return FlightStore(uri, retries, patient=True, credentials=credentials, noted=noted, name=name)
        raise (error.refusal if isinstance(error, RefusedError) else error) from None


def store_of(server: FlightStore, retries: bool = True) -> StoreService:
    """Return the store that a user's ``connect`` opens: that of a server, or that of all servers with which it shares
    its tables. Raises as ``connect``."""
    about = server.holder_health()
    if about.server is not None:
        return _shared(server.placement(), retries, {about.server: server}, server.credentials)
    return _processes(server, about.processes, retries) or server


def _processes(server: FlightStore, uuids: Mapping[str, str], retries: bool) -> PlacedStore | None:
    """Return the store of the processes behind a server, if they can be reached from here; else the server does it.

    Another machine, or a container, may have sockets of another store under the same names, and anyone may make some
    where the directory is not this user's. So these get no token, and do not ask for one, since they are for one user
    alone.
    """
    if not uuids or find_spec("numpy") is None:
        return None
    placement, shown = server.placement(), Credentials(traces=server.credentials.traces)
    if not all(_is_own_socket(location) for locations in placement.servers.values() for location in locations):
        return None
    for name, (location, *_) in placement.servers.items():
        with suppress(UnavailableError):
            found = FlightStore(location, retries, credentials=shown)
            about = found.health()
            if (about.server, about.store_uuid) == (name, uuids.get(name)):
                store = _shared(placement, retries, {name: found}, shown, server)
                store.servers.keep(server)
                return store
            found.close()
            return None
    return None


def _is_own_socket(location: str) -> bool:
    """Return whether only this user can have made the socket at ``location``."""
    scheme, _, path = location.partition("://")
    if scheme != "grpc+unix":
        return False
    try:
        folder = os.stat(os.path.dirname(path))
    except OSError:
        return False
    return folder.st_uid == os.geteuid() and not folder.st_mode & 0o022


def store_at_placement(placement: Placement, retries: bool, credentials: Credentials) -> PlacedStore:
    """Return the store that a user's ``connect`` opens by a placement: that of all its servers, each connected on first
    use."""
    return _shared(placement, retries, {}, credentials)


def _shared(
    placement: Placement,
    retries: bool,
    connected: dict[str, FlightStore],
    credentials: Credentials,
    public: FlightStore | None = None,
) -> PlacedStore:
    from ..cluster.servers import Servers
    from ..cluster.store import PlacedStore

    servers = Servers(placement, retries, credentials=credentials)
    for name, store in connected.items():
        servers.adopt(name, store)
    return PlacedStore(servers, public)


def _read(placement: object) -> Placement:
    from ..cluster.placement_file import parse_placement, read_placement

    if isinstance(placement, Placement):
        return placement
    return read_placement(placement) if isinstance(placement, str | Path) else parse_placement(placement)
