"""The JSON of commands: what is wrong with it is told in one line."""

import json

import pytest

from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.protocol.command import RecallBody, read_json


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "the body is wrong at table: field required"),
        ({"tabel": "t"}, "the body is wrong at table: field required; unknown 'tabel': did you mean 'table'?"),
        ({"table": "t", "x": 1}, "the body: unknown 'x'; known: table, new_name"),
        (
            {"x": 1, "y": 2, "z": 3},
            "the body is wrong at table: field required; unknown 'x'; unknown 'y'; known: table, new_name (and 1 more)",
        ),
    ],
)
def test_an_error_tells_all_that_is_wrong(body, message):
    with pytest.raises(InvalidArgumentError) as caught:
        read_json(RecallBody, json.dumps(body).encode(), "the body")
    assert caught.value.message == message
