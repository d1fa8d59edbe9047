"""The functions of an expression: their names, other names for them, and how many arguments they take."""

from __future__ import annotations

MANY = 1_000
SIGNATURES: dict[str, tuple[int, int]] = {
    "ABS": (1, 1),
    "CEIL": (1, 1),
    "COALESCE": (1, MANY),
    "CONCAT": (1, MANY),
    "CONTAINS": (2, 2),
    "DAY": (1, 1),
    "FLOOR": (1, 1),
    "GREATEST": (1, MANY),
    "HOUR": (1, 1),
    "IF": (2, 3),
    "LEAST": (1, MANY),
    "LEFT": (2, 2),
    "LENGTH": (1, 1),
    "LOWER": (1, 1),
    "LTRIM": (1, 2),
    "MINUTE": (1, 1),
    "MOD": (2, 2),
    "MONTH": (1, 1),
    "NOW": (0, 0),
    "NULLIF": (2, 2),
    "REPLACE": (3, 3),
    "RIGHT": (2, 2),
    "ROUND": (1, 2),
    "RTRIM": (1, 2),
    "SECOND": (1, 1),
    "SUBSTR": (2, 3),
    "TRIM": (1, 2),
    "UPPER": (1, 1),
    "YEAR": (1, 1),
}
"""The least and the most arguments of each function. EXTRACT(part FROM x) is the function of that part."""

ALIASES = {
    "ARRAY_CONTAINS": "CONTAINS",
    "CARDINALITY": "LENGTH",
    "CEILING": "CEIL",
    "CHARACTER_LENGTH": "LENGTH",
    "CHAR_LENGTH": "LENGTH",
    "IFNULL": "COALESCE",
    "IIF": "IF",
    "LCASE": "LOWER",
    "LEN": "LENGTH",
    "NVL": "COALESCE",
    "SUBSTRING": "SUBSTR",
    "UCASE": "UPPER",
}
PARTS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
"""What EXTRACT takes."""
NAMES = ", ".join(sorted([*SIGNATURES, "CAST", "EXTRACT"]))
