"""Options: all are checked, and a wrong one is named with what would work."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from nyala.clients.spark.api import read_table
from nyala.clients.spark.options import (
    NAMES,
    BatchReadOptions,
    ReadKeywords,
    StreamReadOptions,
    StreamWriteOptions,
    WriteKeywords,
    WriteOptions,
    parse,
)
from nyala.clients.spark.server import ServerOptions
from nyala.schemas.cells.timestamp import parse_moment, read_moment
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.table.column import ColumnDefinition
from nyala.schemas.table.table import TableOptions

ROOT = Path(__file__).parents[3]

PLACE = {"uri": "grpc://127.0.0.1:8815", "table": "homes"}
MODELS = {
    "read": BatchReadOptions,
    "readStream": StreamReadOptions,
    "write": WriteOptions,
    "writeStream": StreamWriteOptions,
}


def parsed(what: str, **options: str):
    return parse(MODELS[what], PLACE | {name.lower(): value for name, value in options.items()}, what)  # type: ignore[arg-type]


def listed(*groups: str) -> set[str]:
    """Return the names in groups of the file that the shim in Java reads, too."""
    return {name for group in groups for name in NAMES[group]}


def test_the_list_of_names_is_that_of_the_models() -> None:
    def names(model: type[BaseModel]) -> set[str]:
        return set(map(to_camel, model.model_fields))

    read = listed("server", "whole", "part", "snapshot", "operation")
    assert names(BatchReadOptions) == read
    assert names(StreamReadOptions) - read == listed("stream")
    assert names(ServerOptions) == listed("server")
    in_sql = {"name", "nullable", "write_default", "comment"}  # SQL has words of its own for these
    assert set(TableOptions.model_fields) - in_sql == listed("table property")
    assert set(ColumnDefinition.model_fields) - in_sql == listed("column property")


def test_java_has_the_names_from_the_list() -> None:
    """It asks for no other option, and has no list of its own."""
    sources = [file.read_text() for file in (ROOT / "java/src/main/java/io/nyala/spark").rglob("*.java")]
    asked = re.compile(r'\boptions\.(?:get|getBoolean|getOrDefault|containsKey)\("(\w+)"')
    names = {name for text in sources for name in asked.findall(text)}
    assert "filter" in names and names <= listed(*NAMES)
    low = {name.lower() for name in listed(*NAMES)}
    for given in (found for text in sources for found in re.findall(r"List\.of\(([^()]*)\)", text)):
        assert sum(name.lower() in low for name in re.findall(r'"(\w+)"', given)) < 4, given


def test_read_options_are_what_was_given() -> None:
    options = parsed("read", columns="id, city", filter="id > 3", splitSizeBytes="1000", versionAsOf="77")
    assert (options.columns, options.filter, options.split_size_bytes) == (["id", "city"], "id > 3", 1000)
    assert options.snapshot == 77


def test_columns_may_be_a_list_in_json() -> None:
    assert parsed("read", columns='["a, b", "c"]').columns == ["a, b", "c"]


@pytest.mark.parametrize("name", ["snapshotTimestamp", "timestampAsOf"])
def test_a_moment_is_a_timestamp_or_iso_text(name: str) -> None:
    assert parsed("read", **{name: "7352959198959534080"}).snapshot == 7352959198959534080
    text = "2026-01-31T12:00:00Z"
    assert parsed("read", **{name: text}).snapshot == parse_moment(text)


def test_load_names_the_table() -> None:
    assert parse(BatchReadOptions, {"uri": "grpc://h:1", "path": "homes"}, "read").table == "homes"


def test_what_spark_hands_on_to_a_sink_is_let_through() -> None:
    assert parsed("writeStream", checkpointLocation="/x", queryName="q", txnAppId="a").txn_app_id == "a"


WRONG = {
    "unknown": ("read", {"snapshotTimestmp": "1"}, "did you mean snapshotTimestamp"),
    "one of a stream": ("read", {"maxRowsPerTrigger": "1"}, "maxrowspertrigger"),
    "one of reading": ("write", {"filter": "x"}, "unknown write option 'filter'"),
    "no number": ("read", {"splitSizeBytes": "64m"}, "splitSizeBytes is '64m'"),
    "not positive": ("readStream", {"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger"),
    "no truth value": ("write", {"ignoreNull": "perhaps"}, "ignoreNull is 'perhaps'"),
    "no operation": ("write", {"operation": "blend"}, "operation is 'blend'"),
    "no zone": ("read", {"snapshotTimestamp": "2026-01-31"}, "needs a time zone"),
    "stream of rows": ("readStream", {}, "readChangeFeed=true"),
    "no moment": (
        "readStream",
        {"readChangeFeed": "true", "startingTimestamp": "yesterday"},
        "startingTimestamp 'yesterday'",
    ),
    "two moments": ("read", {"timestampAsOf": "1", "versionAsOf": "1"}, "exclude each other"),
    "moment and changes": (
        "read",
        {"snapshotTimestamp": "1", "startTimestamp": "1"},
        "or startTimestamp, not both",
    ),
    "end without start": ("read", {"endTimestamp": "1"}, "set startTimestamp too"),
    "feed without start": ("read", {"readChangeFeed": "true"}, "set startTimestamp too"),
    "two limits": (
        "readStream",
        {"readChangeFeed": "true", "maxRowsPerTrigger": "1", "maxBytesPerTrigger": "1"},
        "keep one of them",
    ),
    "two operations": ("write", {"operation": "insert", "operationColumn": "op"}, "keep one of them"),
    "app without version": ("write", {"txnAppId": "a"}, "txnAppId and txnVersion must be given together"),
    "version of a stream": ("writeStream", {"txnVersion": "1"}, "unknown writeStream option 'txnversion'"),
    "columns as wrong json": ("read", {"columns": "[a"}, "columns"),
    "tables that differ": ("read", {"path": "barns"}, "'barns'"),
    "many tables": ("read", {"paths": '["a"]'}, "one table"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_are_refused(case: str) -> None:
    what, options, why = WRONG[case]
    with pytest.raises(InvalidArgumentError) as caught:
        parsed(what, **options)
    assert why in str(caught.value)


@pytest.mark.parametrize("missing", ["uri", "table"])
def test_a_place_is_needed(missing: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"option '{missing}' is missing"):
        parse(BatchReadOptions, {name: value for name, value in PLACE.items() if name != missing}, "read")


@pytest.mark.parametrize(
    ("model", "keywords", "arguments"),
    [
        (BatchReadOptions, ReadKeywords, "uri table columns filter snapshotTimestamp startTimestamp endTimestamp"),
        (WriteOptions, WriteKeywords, "uri table operation statement leftOut"),
    ],
)
def test_keywords_are_the_options_without_arguments_of_their_own(model, keywords, arguments: str) -> None:
    written = {field.alias for field in model.model_fields.values()}
    assert keywords.__annotations__.keys() == written - set(arguments.split())


def test_an_age_is_fixed_when_a_table_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DataFrame shows one moment, however often it is used: so Spark gets a timestamp."""
    given: dict[str, str] = {}

    class Reader:
        def format(self, _: str) -> Reader:
            return self

        def options(self, **options: str) -> Reader:
            given.update(options)
            return self

        def load(self) -> None: ...

    session: Any = SimpleNamespace(read=Reader())
    before = read_moment("2h")
    read_table(session, "homes", "grpc://127.0.0.1:8815", as_of="2h")
    read_table(session, "homes", "grpc://127.0.0.1:8815", since=dt.timedelta(days=1), until="2026-01-31T12:00:00Z")
    assert before <= int(given["snapshotTimestamp"]) <= read_moment("2h")
    assert int(given["startTimestamp"]) < before and given["endTimestamp"] == "2026-01-31T12:00:00Z"
    for option in ("snapshotTimestamp", "startTimestamp"):
        assert getattr(parsed("read", **{option: given[option]}), "_".join(re.findall("[A-Z]?[a-z]+", option)).lower())
