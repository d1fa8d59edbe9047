"""Which names objects may have."""

import pytest

from nyala.engine.bucket import check_name, check_prefix
from nyala.schemas.errors import InvalidArgumentError


@pytest.mark.parametrize("name", ["a", "log/00000000000000000042", "tablets/17/5.base", "_a-b.c"])
def test_names_of_objects(name: str) -> None:
    assert check_name(name) == name
    assert check_prefix(f"{name}/") == f"{name}/"


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", ".", "..", "a/../b", ".hidden", "a b", "a%2fb", "\u00e9", "a\n"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not a valid name of an object"):
        check_name(name)


def test_a_prefix_ends_with_a_slash() -> None:
    assert check_prefix("") == ""
    for prefix in ("log", "/", "../", "a//"):
        with pytest.raises(InvalidArgumentError):
            check_prefix(prefix)
