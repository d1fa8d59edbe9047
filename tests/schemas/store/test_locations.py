"""Several locations of one store, as one text or as a list."""

from __future__ import annotations

import pytest

from nyala.clients.cluster.placement_file import parse_placement
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.store.locations import joined, locations_of


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("grpc://m1:8815", ["grpc://m1:8815"]),
        ("grpc://m1:8815,m2:8815", ["grpc://m1:8815", "grpc://m2:8815"]),
        ("grpc+tls://m1:8815, m2:8815 ,grpc://m3:1", ["grpc+tls://m1:8815", "grpc+tls://m2:8815", "grpc://m3:1"]),
        (["grpc://m1:8815", "m2:8815", "grpc://m1:8815"], ["grpc://m1:8815", "grpc://m2:8815"]),
        (("grpc://[::1]:1,[::1]:2",), ["grpc://[::1]:1", "grpc://[::1]:2"]),
        ("grpc+unix:///run/a.sock,/run/b.sock", ["grpc+unix:///run/a.sock", "grpc+unix:///run/b.sock"]),
        ("grpc+unix:///run/a,b.sock", ["grpc+unix:///run/a,b.sock"]),
        ("m1:8815,m2:8815", ["grpc://m1:8815", "grpc://m2:8815"]),
        ("127.0.0.1:8815", ["grpc://127.0.0.1:8815"]),
        ("[::1]:8815", ["grpc://[::1]:8815"]),
        ("m1", ["m1"]),
    ],
)
def test_each_location_is_found_once_and_whole(given: str | list[str], found: list[str]) -> None:
    assert [*locations_of(given)] == found
    assert [*locations_of(joined(found))] == found


@pytest.mark.parametrize("given", ["", "grpc://m1:8815,", ",grpc://m1:8815", "grpc://m1:1,,m2:1", [], [""]])
def test_a_location_that_is_empty_is_an_error(given: str | list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match="location"):
        locations_of(given)


@pytest.mark.parametrize(
    "given", ["grpc://u:hush@m1:8815", "hush@m1:8815", ["grpc://m2:1", "u:hush@m1:8815"], "grpc+tls://u:hush@m1:8815,,"]
)
def test_a_location_has_no_credentials(given: str | list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match="location") as caught:
        locations_of(given)
    assert "hush" not in caught.value.message
    assert locations_of("grpc+unix:///run/me@work.sock") == ("grpc+unix:///run/me@work.sock",)


def test_a_placement_takes_several_locations_of_a_server() -> None:
    two = ("grpc://m1:1", "grpc://m2:1")
    for given in ("grpc://m1:1,m2:1", ["grpc://m1:1", "m2:1"], ["grpc://m1:1,m2:1"], two):
        placement = parse_placement({"servers": {"a": given}})
        assert placement.servers["a"] == two
        assert parse_placement(placement.model_dump(mode="json")) == placement
    for wrong in ([], "", ["grpc://m1:1", ""], 5, [5]):
        with pytest.raises(InvalidArgumentError, match=r"servers|location"):
            parse_placement({"servers": {"a": wrong}})
