"""Names of writers with their users."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nyala.schemas.rows.write import WRITER_LENGTH_MAX
from nyala.schemas.rows.writer_name import is_owned, owned, shown, unowned

NAMES = st.text(min_size=1, max_size=WRITER_LENGTH_MAX)


@given(st.tuples(st.text(max_size=150), NAMES), st.tuples(st.text(max_size=150), NAMES))
def test_two_users_never_have_the_same(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (owned(*one) == owned(*other)) == (one == other)


@given(st.text(max_size=150), NAMES)
def test_a_name_is_short_and_has_its_writer_or_its_tablet(user: str, writer: str) -> None:
    name = owned(user, writer)
    assert is_owned(name) and len(name) <= WRITER_LENGTH_MAX
    assert unowned(name) in (writer, None)
    assert unowned(owned(user, owned("root", "w"))) is None, "no way to the names of another"


def test_the_tablet_at_the_end_stays() -> None:
    assert owned("u" * 300, "job@0123abcd").endswith("@0123abcd")
    assert unowned(owned("u" * 300, "job@0123abcd")) is None


def test_what_people_read() -> None:
    assert shown(owned("alice@example.org", "nightly")) == "alice@example.org/nightly"
    assert shown("nightly") == "nightly"
