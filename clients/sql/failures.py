"""Errors of DataFusion, as errors of the store: one line, in its words, without its insides."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from ...schemas.errors import InvalidArgumentError, StoreError, UnavailableError
from ...schemas.phrases import perhaps

_PREFIX = re.compile(
    r"^(?:(?:DataFusion|Arrow|External|Execution|Schema|SQL|Parquet|Compute|Cast|Invalid argument|Internal|Context|"
    r"This feature is not implemented|Error during planning|type_coercion|Optimizer rule '[a-z_]+' failed|caused by|"
    r"Invalid \(non-executable\) plan after Analyzer|ParserError\(\")\s*(?:error)?:?\s*)+",
    re.IGNORECASE,
)
_UNKNOWN_COLUMN = re.compile(r'No field named (?P<name>(?:"(?:[^"]|"")*"|[^.\s]+)(?:\.(?:"(?:[^"]|"")*"|[^.\s]+))?)')
_VALID = re.compile(r"Valid fields are (?P<names>.*?)\.?$", re.S)
_UNKNOWN_FUNCTION = re.compile(r"Invalid function '(?P<name>[^']*)'")
_CAST = re.compile(
    r"Cannot cast (?:string|value) '(?P<value>.*?)' to (?:a )?(?:value of )?(?P<kind>\w+)(?: type)?", re.S
)
_FAR = re.compile(r"value of (?P<value>-?\d+) is out of range Int64|Overflow happened on: (?P<computed>[^\n]{1,100})")
_MEMORY = re.compile(r"Resources exhausted|Not enough memory|Failed to allocate", re.I)
_OPERATOR = re.compile(
    r"(HashJoinInput|SortMergeJoin|WindowAgg|GroupedHashAggregate|ExternalSorter|CrossJoin|NestedLoopJoin|\w*Exec)"
)
_RUST = re.compile(r"(?:Utf8View|Utf8|Int64|Int32|Float64|Boolean)\((\"?)(.*?)\1\)")
_OWN = re.compile(r"value: InvalidArgumentError\((?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\)")
"""An error of a function in Python."""
_NODE = r"(?:Physical plan does not support logical expression|Unsupported ast node(?: in \w+)?:?) "
_NOT_HERE = [
    (
        re.compile(
            _NODE + r"(?:Exists|InSubquery|SetComparison)\b|In/Exist/SetComparison subquery|"
            r"No field named .*(?:= ANY|<> ALL|EXISTS|IN) (?:\(<subquery>\)|THEN|AND|OR|END)"
        ),
        "IN, ANY, ALL and EXISTS with a query are allowed only in conditions of WHERE, HAVING and ON: join with the "
        "query instead",
    ),
    (
        re.compile(r'No field named "?__correlated'),
        "a subquery refers to the outer query in a way that is not supported: write a join",
    ),
    (
        re.compile(_NODE + "ScalarSubquery"),
        "a subquery that gives one value may refer to the outer query only with =: write a join",
    ),
    (
        re.compile(_NODE + "OuterReferenceColumn"),
        "a part of FROM refers to another table in FROM, which is not supported here: write a join, or unnest() in the "
        "list of a SELECT",
    ),
    (
        re.compile(_NODE + "WindowFunction"),
        "window functions are not allowed here: compute them in a subquery in FROM",
    ),
    (re.compile(_NODE + "Collate"), "COLLATE is not supported: texts are compared by their bytes"),
    (re.compile(_NODE + r"(?P<node>\w+)"), "{node} is not supported here"),
]
"""What DataFusion says of parts of queries that it cannot run, and what to say in place of it."""
_LONGEST = 300


def failure(error: BaseException, columns: Iterable[str], functions: Iterable[str], memory_bytes: int) -> StoreError:
    """Return what to raise for an error of DataFusion; ``columns`` are those that the statement's tables have."""
    text = str(error).strip()
    for pattern, message in _NOT_HERE:
        if (refused := pattern.search(text)) is not None:
            return InvalidArgumentError(f"the statement cannot be run: {message.format(**refused.groupdict())}")
    if (unknown := _UNKNOWN_COLUMN.search(text)) is not None:
        return _unknown_column(unknown["name"].rstrip("."), text, columns)
    if (called := _UNKNOWN_FUNCTION.search(text)) is not None:
        return InvalidArgumentError(f"there is no function {called['name']!r}{perhaps(called['name'], functions)}")
    if (own := _OWN.search(text)) is not None:
        return InvalidArgumentError(ast.literal_eval(own["text"]))
    if "ivide by zero" in text:
        return InvalidArgumentError("division by zero")
    if (far := _FAR.search(text)) is not None:
        return InvalidArgumentError(
            f"{far['value'] or far['computed']} is out of the range of bigint: cast an operand to numeric"
        )
    if (cast := _CAST.search(text)) is not None:
        return InvalidArgumentError(f"{cast['value'][:100]!r} cannot be cast to {_kind(cast['kind'])}")
    if _MEMORY.search(text):
        operator = _OPERATOR.search(text)
        what = f" in {operator[1]}" if operator else ""
        return UnavailableError(
            f"the statement needs more memory{what} than the {memory_bytes:,} bytes of sql_memory_bytes: select fewer "
            "rows or columns, or raise the limit"
        )
    return InvalidArgumentError(f"the statement cannot be run: {_plain(text)}")


def _unknown_column(name: str, text: str, columns: Iterable[str]) -> InvalidArgumentError:
    bare = name.split(".")[-1].strip('"')
    names = list(columns)
    exact = next((each for each in names if each.lower() == bare.lower() and each != bare), None)
    if exact is not None:
        return InvalidArgumentError(f'there is no column {bare!r}: write "{exact}", with its quotes')
    if bare in names:
        return InvalidArgumentError(f"there is no column {name} here")
    return InvalidArgumentError(f"there is no column {bare!r}{perhaps(bare, names)}")


def _plain(text: str) -> str:
    line = next((part for part in map(_cleaned, text.split("\n")) if part), "the query engine gave no reason")
    return line[:_LONGEST].rstrip(". ")


def _cleaned(line: str) -> str:
    line = _PREFIX.sub("", line.strip())
    line = line.split(" Backtrace", 1)[0].replace("nyala.public.", "")
    return _TYPE.sub(lambda named: _WORDS[named[0]], _RUST.sub(r"\2", line)).rstrip('")')


def _kind(name: str) -> str:
    return _KINDS.get(name, name.lower())


_WORDS = {
    "Utf8View": "text",
    "Utf8": "text",
    "LargeUtf8": "text",
    "BinaryView": "bytea",
    "Binary": "bytea",
    "Int8": "tinyint",
    "Int16": "smallint",
    "Int32": "integer",
    "Int64": "bigint",
    "UInt64": "unsigned bigint",
    "Float32": "real",
    "Float64": "double",
    "Date32": "date",
    "Decimal128": "decimal",
}
"""The types of Arrow, in SQL's words."""
_TYPE = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b")
_KINDS = {
    "Int8": "an 8-bit integer",
    "Int16": "a smallint",
    "Int32": "an integer",
    "Int64": "a bigint",
    "Float32": "a real",
    "Float64": "a double",
    "Date32": "a date",
    "Boolean": "a boolean",
}
