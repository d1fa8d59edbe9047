"""JSON by kernels: the same as text by text, for texts of all kinds, also such as are nearly JSON."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.vectors.arrow_buffers import from_strings, validity_of
from nyala.engine.vectors.json_text import json_values, not_json
from nyala.schemas.cells.json_text import DEPTH_MAX, is_json, path_of, text_at, value_at
from nyala.schemas.errors import InvalidArgumentError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=12,
)
SPACES = st.sampled_from([(",", ":"), (" , ", "\t:\n"), (", ", ": ")])
TEXTS = st.builds(
    lambda value, spaces, ascii_: json.dumps(value, separators=spaces, ensure_ascii=ascii_),
    VALUES,
    SPACES,
    st.booleans(),
)
PATHS = st.lists(st.sampled_from("abcd") | st.integers(-4, 4), max_size=3).map(tuple)
PIECES = st.sampled_from(
    [*'{}[],:"\\ \n\t-+.eE019truefalsnu/', "\\u", "\\ud83d", "\\ude00", "\x01", "null", "\u00e9", "1e5"]
)
NEARLY = st.lists(PIECES, max_size=12).map("".join)
WRONG = [
    *(
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "[,1]",
        '{"a":1,}',
        "{'a':1}",
        "{a:1}",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "tru",
    ),
    *(
        "nul",
        "NaN",
        "Infinity",
        "-Infinity",
        '"',
        '"\\x"',
        '"\\u12g4"',
        '"\\u123"',
        '"a\nb"',
        '"a" "b"',
        "[1 2]",
        "[]]",
    ),
    *('{"a"}', '{"a":}', '{"a" 1}', "{1:2}", "\ufeff1", "1 2", "/*1*/1", "\x0c1", '["\t"]', "[1}", '{"a":1]'),
    *("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), "[" * 100_000, '{"a":' * 5_000),
]
RIGHT = [
    *(
        "0",
        "-0",
        "-1.5e-10",
        "1E+5",
        "true",
        "false",
        "null",
        '""',
        "[]",
        "{}",
        " [ ] ",
        ' { "a" : 1 } ',
        '"\\/\\b\\f"',
    ),
    *(
        '"\\ud83d\\ude00"',
        '"\\ud83d"',
        '"\u00e9"',
        '{"a":1,"a":2}',
        "[" * DEPTH_MAX + "]" * DEPTH_MAX,
        '"\x7f"',
        "1" * 5_000,
    ),
]


def kernel_says(texts: list[str]) -> list[bool]:
    array = pa.array(texts)
    wrong = not_json(from_strings(array, validity_of(array)))
    return [True] * len(texts) if wrong is None else (~wrong).tolist()


@pytest.mark.parametrize(("texts", "expected"), [(WRONG, False), (RIGHT, True)])
def test_texts_that_are_json_and_such_as_are_not(texts: list[str], expected: bool) -> None:
    assert [text for text in texts if is_json(text) is not expected] == []
    assert [text for text, says in zip(texts, kernel_says(texts), strict=True) if says is not expected] == []


@given(st.lists(TEXTS | NEARLY, max_size=8))
def test_the_kernel_takes_the_same_texts(texts: list[str]) -> None:
    assert kernel_says(texts) == [is_json(text) for text in texts]


@given(TEXTS, st.data())
def test_a_cut_or_changed_text_is_judged_alike(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text)))
    texts = [text[:place], text[place:], text[:place] + data.draw(PIECES) + text[place + 1 :]]
    assert kernel_says(texts) == [is_json(each) for each in texts]


@given(st.lists(TEXTS | NEARLY.filter(is_json) | st.none(), max_size=8), PATHS)
def test_the_kernel_reads_the_same_values(texts: list[str | None], steps: tuple[str | int, ...]) -> None:
    array = pa.array(texts, pa.string())
    for is_text, read in ((False, value_at), (True, text_at)):
        expected = [None if text is None else read(text, steps) for text in texts]
        assert json_values(array, steps, is_text).to_pylist() == expected


@given(VALUES, PATHS)
def test_values_are_those_of_the_json_module(value: object, steps: tuple[str | int, ...]) -> None:
    expected: object = value
    for step in steps:
        try:
            expected = expected[step] if isinstance(expected, dict | list) else None  # pyright: ignore
        except (LookupError, TypeError):
            expected = None
    text = value_at(json.dumps(value), steps)
    assert (None if text is None else json.loads(text)) == expected


def test_escapes_and_double_keys() -> None:
    texts = [r'{"a":"x\n\"\u00e9\ud83d\ude00\ud800!","\u0061":"last"}', r'{"\u00e9\ud83d\ude00": [1, 2.50, "\t"]}']
    array = pa.array(texts)
    assert json_values(array, ("a",), True).to_pylist() == ["last", None]
    assert json_values(array, ("\u00e9\U0001f600", 1), True).to_pylist() == [None, "2.50"]
    assert json_values(array, ("\u00e9\U0001f600", -1), True).to_pylist() == [None, "\t"]
    first = pa.array([texts[0].replace("0061", "0062")])
    assert json_values(first, ("a",), True).to_pylist() == ['x\n"\u00e9\U0001f600\ufffd!']
    assert json_values(first, ("b",), False).to_pylist() == ['"last"']


def test_slices_and_nulls_over_bytes() -> None:
    array = pa.array(['{"a":1}', None, '{"a":null}', "[7]"]).slice(1)
    assert json_values(array, ("a",), False).to_pylist() == [None, "null", None]
    assert json_values(array, ("a",), True).to_pylist() == [None, None, None]
    garbage = pa.Array.from_buffers(
        pa.string(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([0, 3, 4], np.int32)), pa.py_buffer(b"{{{1")], 1
    )
    assert json_values(garbage, (), True).to_pylist() == [None, "1"]
    assert not_json(from_strings(garbage, validity_of(garbage))) is None


def test_text_that_is_no_json_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'\{oops' is not JSON"):
        json_values(pa.array(["1", "{oops"]), ("a",), True)


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("$", ()),
        ("$.a.b", ("a", "b")),
        ('$."a b".c[0][-1]', ("a b", "c", 0, -1)),
        (r'$."q\"b\\"', ('q"b\\',)),
        ("a.b", ("a.b",)),
        ("", ("",)),
        (3, (3,)),
        ("$.\u00e9", ("\u00e9",)),
    ],
)
def test_paths(path: str | int, steps: tuple[str | int, ...]) -> None:
    assert path_of(path) == steps


@pytest.mark.parametrize("path", ["$.", "$a", "$..a", "$[*]", "$.*", "$[x]", '$."a', "$.a b", 1 << 40, True, None, 1.5])
def test_paths_that_are_none(path: object) -> None:
    with pytest.raises(InvalidArgumentError, match="JSON path"):
        path_of(path)  # pyright: ignore[reportArgumentType]
