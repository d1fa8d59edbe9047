"""Reads a placement file."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ...schemas.errors import InvalidArgumentError, NotFoundError
from ...schemas.protocol.command import explain
from ...schemas.store.placement import Placement


def read_placement(path: str | Path) -> Placement:
    """Read a placement, the servers that share a store's tables, from a TOML file, or one of JSON if its name ends in
    ``.json``.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: it is not a valid placement; the message says where.
    """
    path = Path(path)
    try:
        parsed = _parsed(path)
    except OSError as error:
        raise NotFoundError(f"the placement file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidArgumentError(f"the placement file {path} is neither TOML nor JSON: {error}") from None
    return parse_placement(parsed, f"the placement file {path}")


def parse_placement(given: Any, what: str = "the placement") -> Placement:
    """Return the placement, the servers that share a store's tables, that a file's content describes. Raises
    InvalidArgumentError, which calls it ``what``."""
    try:
        return Placement.model_validate(given)
    except ValidationError as error:
        raise InvalidArgumentError(explain(error, what)) from None


def _parsed(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
