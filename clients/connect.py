"""``nyala.connect``: a database behind Arrow Flight."""

from .database import Database
from .flight import FlightStore


def connect(url: str) -> Database:
    """Return the database that a server at ``url`` serves, as in ``grpc://127.0.0.1:8815``.

    Raises:
        UnavailableError: nobody answers there.
        InvalidArgumentError: ``url`` is no location.
    """
    return Database(FlightStore(url))
