"""The words of SQL text.

`tokenizer` cuts the text, in some 1 us a word, and a word may be one character. So lists of plain literals are found
first, by one regular expression, and read as one word. Only the text between them goes to the tokenizer, at most
``MAX_PLAIN_TEXT`` characters.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from ...schemas.cells.literal import to_json
from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.limits import Limits
from ...schemas.protocol.request import check
from .tokenizer import NUMBER, tokens_of

LONG_LIST = 64
"""The regular expression reads lists with at least this many values."""
MAX_PLAIN_TEXT = 128 * 1024
"""Characters of a filter outside of such lists: enough for 10,000 comparisons, and at most 0.2 s of work."""

_LITERAL = rf"(?:[+-]?{NUMBER}|'[^']*(?:''[^']*)*')"
_STEP = re.compile(r"""'[^']*(?:''[^']*)*'|"[^"]*(?:""[^"]*)*"|--[^\r\n]*|(?P<list>\()""")
_RUN = re.compile(rf"(?:\s*{_LITERAL}\s*,){{1,200}}", re.ASCII)
"""The most of a list to read at once, so that other threads can use the interpreter."""
_INTEGERS = re.compile(r"(?: ?-?\d{1,18},){1,1000}", re.ASCII)
"""A run of plain integers, as most long lists are: quicker to find and to read."""
_LAST = re.compile(rf"\s*{_LITERAL}\s*\)", re.ASCII)
_VALUES = re.compile(rf"([+-]?{NUMBER})|'([^']*(?:''[^']*)*)'", re.ASCII)
_SIGNED = re.compile(f"[+-]?{NUMBER}", re.ASCII)
_MOST_DIGITS = 1_000
_STEPS = 256
"""Steps of the search between two checks whether to continue."""
_PIECE = 64 * 1024
"""Characters that are searched in one step."""


class Kind(Enum):
    WORD = auto()
    """A keyword or a column, not quoted."""
    QUOTED = auto()
    """A column in double quotes."""
    NUMBER = auto()
    STRING = auto()
    BINARY = auto()
    LIST = auto()
    """A whole parenthesised list of numbers and strings."""
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Word:
    """One word of SQL text: ``text`` is its content without quotes, ``value`` the JSON of a literal or of a list of
    them."""

    kind: Kind
    text: str
    start: int
    value: Any = None

    def is_keyword(self, *keywords: str) -> bool:
        """Whether this is one of ``keywords``, which are upper case."""
        return self.kind is Kind.WORD and self.text.upper() in keywords

    def is_symbol(self, *symbols: str) -> bool:
        return self.kind is Kind.SYMBOL and self.text in symbols


def words_of(text: str, limits: Limits, what: str = "filter") -> list[Word]:
    """Return the words of SQL ``text``; the last one has the kind END. ``what`` names the text in errors.

    Raises:
        InvalidArgumentError: a quote or comment does not end, a number is invalid, or there is more text or there are
            more values than a filter may have.
    """
    words: list[Word] = []
    first = plain = 0
    for found in _lists(text, limits, what):
        plain += found.start - first
        _check_plain(plain, what)
        words.extend(_plain_words(text[first : found.start], first, what))
        words.append(found)
        first = found.start + len(found.text)
    _check_plain(plain + len(text) - first, what)
    words.extend(_plain_words(text[first:], first, what))
    words.append(Word(Kind.END, "", len(text)))
    return words


def _check_plain(size: int, what: str) -> None:
    if size > MAX_PLAIN_TEXT:
        raise InvalidArgumentError(
            f"the {what} has more than {MAX_PLAIN_TEXT:,} characters besides long lists of literals; send a longer "
            f"{what} as a tree"
        )


def _lists(text: str, limits: Limits, what: str) -> Iterator[Word]:
    """Yield the long lists of literals. Stops early in text that is too long anyway."""
    if _has_nesting_comment(text):  # only the tokenizer reads these
        return
    at = end = plain = 0
    values_count = steps_count = 0
    # Nothing beyond the longest plain text can be reached: searching all of it would be one long step.
    while plain <= MAX_PLAIN_TEXT and (step := _STEP.search(text, at, at + MAX_PLAIN_TEXT - plain + 1)):
        at = step.end()
        if (steps_count := steps_count + 1) % _STEPS == 0:
            check()
        if step["list"] is not None and (found := _list_at(text, at, limits.in_list_values, what)):
            values_count += len(found.value)
            _check_values(values_count, limits.predicate_values, what)
            yield found
            at = end = found.start + len(found.text)
        plain += at - end
        end = at


def _has_nesting_comment(text: str) -> bool:
    for first in range(0, len(text), _PIECE):
        check()
        end = first + _PIECE + 1
        if text.find("/*", first, end) >= 0:
            return True
    return False


def _check_values(count: int, most: int, what: str) -> None:
    if count > most:
        raise InvalidArgumentError(f"the {what} lists more than {most:,} values")


def _list_at(text: str, first: int, values_max: int, what: str) -> Word | None:
    """Return the list whose parenthesis ends at ``first``; None if it is short, or has more than plain literals.

    Raises:
        InvalidArgumentError: it has more than ``values_max`` values.
    """
    values: list[Any] = []
    at = first
    while part := _INTEGERS.match(text, at) or _RUN.match(text, at) or _LAST.match(text, at):
        check()
        try:
            if part.re is _INTEGERS:
                values.extend(map(int, part[0][:-1].split(",")))
            else:
                for number, string in _VALUES.findall(text, at, part.end()):
                    values.append(_number_of(number) if number else string.replace("''", "'"))
        except ValueError:
            return None  # too many digits; the tokenizer reports where they are
        _check_values(len(values), values_max, what)
        at = part.end()
        if text[at - 1] == ")":
            return Word(Kind.LIST, text[first - 1 : at], first - 1, values) if len(values) >= LONG_LIST else None
    return None


def number_value(digits: str) -> Any:
    """Return the JSON of a number in SQL text: an int, or its digits as written.

    Raises:
        ValueError: it is not a number.
    """
    if not _SIGNED.fullmatch(digits):
        raise ValueError(digits)
    return _number_of(digits)


def _number_of(digits: str) -> Any:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(digits)
    is_whole = digits.lstrip("+-").isdigit()
    return int(digits) if is_whole else {"decimal": digits}


def error_at(word: Word, why: str, what: str) -> InvalidArgumentError:
    """Return an error that points at a ``word`` of SQL text; ``what`` names the text."""
    near = "the end" if word.kind is Kind.END else repr(word.text[:40])
    return InvalidArgumentError(f"invalid {what} at character {word.start + 1}, {near}: {why}")


def _plain_words(text: str, offset: int, what: str) -> Iterator[Word]:
    for kind, content, start in tokens_of(text, what):
        if kind in ("NUMBER", "HEXADECIMAL"):
            yield _number(Word(Kind.NUMBER, content, offset + start), what)
        elif kind == "BINARY":
            yield _binary(Word(Kind.BINARY, content, offset + start), what)
        else:
            yield Word(Kind[kind], content, offset + start, content if kind == "STRING" else None)


def _number(word: Word, what: str) -> Word:
    try:
        return Word(word.kind, word.text, word.start, number_value(word.text))
    except ValueError:
        raise error_at(
            word, f"a number must be decimal, such as 12, -1.5 or 1e-3, of at most {_MOST_DIGITS} digits", what
        ) from None


def _binary(word: Word, what: str) -> Word:
    try:
        return Word(word.kind, word.text, word.start, to_json(bytes.fromhex(word.text)))
    except ValueError:
        raise error_at(word, "X'...' takes an even number of hexadecimal digits", what) from None
