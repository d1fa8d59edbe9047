"""The store against the model: random sequences, every step checked now and at earlier moments."""

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import machine_of
from tests.model.shapes import ALL_TYPES, U64, Shape
from tests.model.subjects import EmbeddedSubject, FlightSubject


def budget(examples: int, steps: int) -> settings:
    """Return settings that report a failure after some shrinking; the notes of the error have it as a test."""
    phases = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
    return settings(max_examples=examples, stateful_step_count=steps, deadline=None, phases=phases, print_blob=True)


@pytest.mark.parametrize("shape", [U64, ALL_TYPES], ids=["u64", "all types"])
@pytest.mark.parametrize(
    ("subject", "examples"), [(EmbeddedSubject, 80), (FlightSubject, 20)], ids=["embedded", "flight"]
)
def test_the_store_is_the_model(shape: Shape, subject: type[EmbeddedSubject], examples: int) -> None:
    run_state_machine_as_test(machine_of(shape, subject), settings=budget(examples, 50))
