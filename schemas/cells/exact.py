"""Decimals without rounding.

Python computes with decimals in the context of the thread, which keeps 28 digits unless somebody has changed it. A
column holds 38. So no sum, shift or conversion of a decimal may depend on that context.
"""

from __future__ import annotations

import decimal
from typing import Any

DIGITS_MAX = 76
"""More than the sum, or the digits on both sides of the point, of any two cells take."""
EXACT = decimal.Context(
    prec=DIGITS_MAX,
    Emin=decimal.MIN_EMIN,
    Emax=decimal.MAX_EMAX,
    traps=[decimal.InvalidOperation, decimal.Inexact, decimal.Overflow, decimal.FloatOperation],
)
"""Raises an ``ArithmeticError`` rather than round. Thread safe: only its flags, which nobody reads, ever change."""


def exact_decimal(value: Any) -> decimal.Decimal:
    """Return the decimal with all digits of a text, an integer or a decimal.

    Raises:
        ArithmeticError: the text is no number.
        TypeError, ValueError: it is something else.
    """
    return decimal.Decimal(value, EXACT)


class WrittenFloat(float):
    """A float of JSON that remembers its digits as they were written: a decimal has all of them."""

    def __new__(cls, text: str) -> WrittenFloat:
        """Return the float that a text of JSON means."""
        made = super().__new__(cls, text)
        made.text = str(text)
        return made

    text: str

    def __repr__(self) -> str:
        return self.text

    @property
    def is_exact(self) -> bool:
        """Whether the float alone has the same digits."""
        try:
            return decimal.Decimal(self.text) == decimal.Decimal(repr(float(self)))
        except ArithmeticError:  # an exponent of twenty digits
            return False


def power_of_ten(exponent: int) -> decimal.Decimal:
    """Return 10 ** exponent as an exact decimal.

    >>> power_of_ten(-2)
    Decimal('0.01')
    """
    return decimal.Decimal((0, (1,), exponent))


def at_scale(value: decimal.Decimal, scale: int) -> decimal.Decimal:
    """Return a decimal with so many digits after the point.

    Raises:
        ArithmeticError: it has more, or too many digits in all.
    """
    return value.quantize(power_of_ten(-scale), context=EXACT)
