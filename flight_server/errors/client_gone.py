"""A client that disconnects before its answer: Arrow Flight reports it in several ways, none of them our fault."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.flight as fl
from pydantic import BaseModel

from ...schemas.errors import UnavailableError


class ClientGoneError(UnavailableError):
    """The error of a call whose client is gone and cannot be answered. Applied rows stay."""


def send_answer(writer: fl.FlightMetadataWriter, answer: BaseModel | bytes) -> None:
    """Send the answer to a write to its client, who may be gone.

    Raises:
        ClientGoneError: the client is gone.
    """
    try:
        writer.write(answer if isinstance(answer, bytes) else answer.model_dump_json().encode())
    except (fl.FlightError, pa.ArrowException, OSError):
        raise ClientGoneError("the client disconnected before its answer") from None
