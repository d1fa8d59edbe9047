"""The clock of the micro benchmarks: turns, rates, and who is compared with whom."""

import pytest

from bench.micro import case
from bench.micro.case import NYALA, Case


def test_rates_are_amounts_a_second_of_processor_time(monkeypatch):
    now = 0.0
    calls = []

    def work(subject: str, seconds: float) -> None:
        nonlocal now
        now += seconds
        calls.append(subject)

    monkeypatch.setattr(case.time, "thread_time", lambda: now)
    actions = {NYALA: lambda: work(NYALA, 0.5), "peer": lambda: work("peer", 2.0)}
    results = Case("copy", "GB", 10.0, actions).measure(rounds=3)
    assert [(result.subject, result.unit) for result in results] == [(NYALA, "GB/s"), ("peer", "GB/s")]
    assert results[0].samples == pytest.approx([20.0] * 3)
    assert results[1].samples == pytest.approx([5.0] * 3)
    # Two calls each to warm up and to estimate, then turns that change direction.
    assert calls == [NYALA, NYALA, "peer", "peer", NYALA, "peer", "peer", NYALA, NYALA, "peer"]


def test_quick_actions_are_repeated_within_a_sample(monkeypatch):
    now = 0.0

    def work() -> None:
        nonlocal now
        now += case.SAMPLE_SECONDS / 100

    monkeypatch.setattr(case.time, "thread_time", lambda: now)
    (result,) = Case("tick", "calls", 1.0, {NYALA: work}).measure(rounds=1)
    assert result.samples == pytest.approx([100 / case.SAMPLE_SECONDS])
