"""``nyala.connect``: a database behind Arrow Flight."""

from .database import Database
from .flight import FlightStore


def connect(url: str, *, retries: bool = True) -> Database:
    """Return the database that a server at ``url`` serves, as in ``grpc://127.0.0.1:8815``.

    With ``retries`` a write whose answer is lost, since the server was restarted, is sent again for some seconds. Its
    batches are numbered, so that what was applied is not applied again.

    Raises:
        UnavailableError: nobody answers there.
        InvalidArgumentError: ``url`` is no location.
    """
    return Database(FlightStore(url, retries))
