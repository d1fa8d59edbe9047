"""A client that is gone before its answer: Arrow Flight tells of it in several ways, none of them a fault of ours."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.flight as fl
from pydantic import BaseModel

from ..schemas.errors import UnavailableError


class ClientGoneError(UnavailableError):
    """Nobody is there any more to be answered. What was applied stays."""


def send_answer(writer: fl.FlightMetadataWriter, answer: BaseModel) -> None:
    """Send an answer to a write.

    Raises:
        ClientGoneError: there is nobody to read it.
    """
    try:
        writer.write(answer.model_dump_json().encode())
    except (fl.FlightError, pa.ArrowException, OSError):
        raise ClientGoneError("the client disconnected before its answer") from None
