"""The rules of a page header, each broken once: they must hold before anything is allocated."""

import pytest

from nyala.engine.cfile.format import (
    ALL_NULL,
    HAS_BITMAP,
    IS_DICTIONARY,
    MAX_PAGE_BYTES,
    PAGE_HEADER_BYTES,
    PageHeader,
)

SOUND = PageHeader(100, 1, 2, HAS_BITMAP, 800, 90, 13)


def test_a_sound_header_has_no_fault():
    assert SOUND.page_length == PAGE_HEADER_BYTES + 90 + 13 + 1
    assert SOUND.fault(SOUND.page_length) is None
    nulls = PageHeader(100, 1, 0, ALL_NULL, 0, 0, 0)
    assert nulls.fault(PAGE_HEADER_BYTES) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"row_count": 65_537}, "at most 65536"),
        ({"raw_length": MAX_PAGE_BYTES + 1}, "payload of 1073741825 bytes"),
        ({"stored_length": MAX_PAGE_BYTES + 1}, "payload of 1073741825 bytes"),
        ({"compression": 0}, "90 uncompressed bytes, but its header says 800"),
        ({"flags": HAS_BITMAP | 8}, "flags 0x9"),
        ({"flags": HAS_BITMAP | ALL_NULL}, "flags 0x3"),
        ({"flags": 0}, "bitmap of 13 bytes"),
        ({"bitmap_length": 12}, "bitmap of 12 bytes does not fit 100 rows"),
        ({"flags": ALL_NULL, "bitmap_length": 0}, "all its cells are NULL"),
        ({"flags": ALL_NULL | IS_DICTIONARY, "bitmap_length": 0}, "all its cells are NULL"),
    ],
)
def test_each_rule_is_kept(changes, why):
    header = SOUND._replace(**changes)
    fault = header.fault(header.page_length)
    assert fault is not None and why in fault


def test_the_parts_of_a_page_must_fill_it():
    for length in (SOUND.page_length - 8, SOUND.page_length + 8):
        fault = SOUND.fault(length)
        assert fault is not None and f"the footer says {length}" in fault
