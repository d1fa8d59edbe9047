"""Values of Python as text of JSON."""

from __future__ import annotations

import json
from typing import Any

from ...schemas.cells.literal import to_json


def json_text(value: Any) -> str:
    """Return a value that a user gives as text of JSON; text stays as it is. Cells that JSON lacks are as in a scan of
    JSON: dates are ISO text, decimals their digits.

    Raises:
        ValueError: it contains itself.
        InvalidArgumentError: it has a value that is no cell.
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=to_json)
