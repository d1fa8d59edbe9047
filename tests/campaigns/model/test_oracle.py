"""The store against the model: random sequences, every step checked now and at earlier moments."""

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.campaigns.model.machine import machine_of
from tests.campaigns.model.shapes import (
    ALL_TYPES,
    COUNTED,
    EXPIRING,
    EXPIRING_KEY,
    EXPIRING_ORDERED,
    EXPIRING_SHORT_HISTORY,
    IMMUTABLE,
    LONG_CELLS,
    LONG_CELLS_IN_WHOLE_ROWS,
    MERGED,
    MERGED_IN_ORDER,
    MERGED_IN_TURN,
    NESTED,
    NESTED_IN_WHOLE_ROWS,
    NO_INDEX,
    ORDERED,
    ORDERED_BY_TEXT,
    ORDERED_IMMUTABLE,
    PARTITIONED,
    SHORT_HISTORY,
    SMALL_INDEX,
    STRING_KEY,
    STRING_KEY_NO_INDEX,
    U64,
    Shape,
)
from tests.campaigns.model.subjects import BucketSubject, DirectSubject, EmbeddedSubject, FlightSubject
from tests.dose import dose


def budget(examples: int, steps: int) -> settings:
    """Return settings that report a failure after some shrinking; the notes of the error have it as a test."""
    phases = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
    return settings(max_examples=examples, stateful_step_count=steps, deadline=None, phases=phases, print_blob=True)


CASES = {
    "embedded, u64": (EmbeddedSubject, U64, 30),
    "embedded, all types": (EmbeddedSubject, ALL_TYPES, 25),
    "embedded, short history": (EmbeddedSubject, SHORT_HISTORY, 30),
    "embedded, string key": (EmbeddedSubject, STRING_KEY, 15),
    "embedded, immutable columns": (EmbeddedSubject, IMMUTABLE, 15),
    "embedded, small key index": (EmbeddedSubject, SMALL_INDEX, 10),
    "embedded, no key index": (EmbeddedSubject, NO_INDEX, 10),
    "embedded, string key, no key index": (EmbeddedSubject, STRING_KEY_NO_INDEX, 10),
    "embedded, hash and range": (EmbeddedSubject, PARTITIONED, 15),
    "embedded, ordered changes": (EmbeddedSubject, ORDERED, 20),
    "embedded, ordered changes, immutable columns": (EmbeddedSubject, ORDERED_IMMUTABLE, 10),
    "embedded, rows that expire": (EmbeddedSubject, EXPIRING, 25),
    "embedded, rows that expire, short history": (EmbeddedSubject, EXPIRING_SHORT_HISTORY, 20),
    "embedded, rows that expire, ordered changes": (EmbeddedSubject, EXPIRING_ORDERED, 10),
    "embedded, keys that expire": (EmbeddedSubject, EXPIRING_KEY, 10),
    "embedded, nested columns": (EmbeddedSubject, NESTED, 25),
    "embedded, nested columns in whole rows": (EmbeddedSubject, NESTED_IN_WHOLE_ROWS, 10),
    "embedded, long cells": (EmbeddedSubject, LONG_CELLS, 10),
    "embedded, long cells in whole rows": (EmbeddedSubject, LONG_CELLS_IN_WHOLE_ROWS, 5),
    "direct, long cells": (DirectSubject, LONG_CELLS, 5),
    "flight, long cells": (FlightSubject, LONG_CELLS, 5),
    "embedded, merges": (EmbeddedSubject, MERGED, 30),
    "embedded, counters": (EmbeddedSubject, COUNTED, 20),
    "embedded, merges in turn": (EmbeddedSubject, MERGED_IN_TURN, 20),
    "embedded, merges of ordered changes": (EmbeddedSubject, MERGED_IN_ORDER, 15),
    "direct, merges": (DirectSubject, MERGED, 10),
    "flight, merges": (FlightSubject, MERGED, 10),
    "direct, nested columns": (DirectSubject, NESTED, 10),
    "flight, nested columns": (FlightSubject, NESTED, 10),
    "direct, u64": (DirectSubject, U64, 10),
    "direct, short history": (DirectSubject, SHORT_HISTORY, 20),
    "direct, string key, no key index": (DirectSubject, STRING_KEY_NO_INDEX, 10),
    "direct, hash and range": (DirectSubject, PARTITIONED, 15),
    "direct, changes ordered by text": (DirectSubject, ORDERED_BY_TEXT, 10),
    "direct, rows that expire": (DirectSubject, EXPIRING_SHORT_HISTORY, 15),
    "bucket, u64": (BucketSubject, U64, 10),
    "flight, u64": (FlightSubject, U64, 20),
    "flight, all types": (FlightSubject, ALL_TYPES, 20),
    "flight, string key": (FlightSubject, STRING_KEY, 15),
    "flight, immutable columns": (FlightSubject, IMMUTABLE, 15),
    "flight, hash and range": (FlightSubject, PARTITIONED, 15),
    "flight, ordered changes": (FlightSubject, ORDERED, 10),
}
STEPS = 60


@pytest.mark.parametrize(("subject", "shape", "examples"), CASES.values(), ids=CASES.keys())
def test_the_store_is_the_model(subject: type[EmbeddedSubject], shape: Shape, examples: int) -> None:
    run_state_machine_as_test(machine_of(shape, subject), settings=budget(dose(examples // 8 + 1, 2 * examples), STEPS))
