"""A short run of the decaying disk; ``make decay FLIPS=300`` runs as many as you like."""

from pathlib import Path

from tests.campaigns.corruption.decay import Decay


def test_every_read_of_a_decaying_disk_is_right_or_an_error_and_nothing_wrong_is_written(tmp_path: Path) -> None:
    decay = Decay(tmp_path, seed=0)
    decay.run(25, met_min=6)
    assert not decay.wrong
    assert decay.rows_checked > 50_000
    assert decay.met > 5, "hardly a flip was met: the run shows nothing"
    sound = sum(count for what, count in decay.counts.items() if "scan" in what and "CORRUPTION" not in what)
    assert sound > 2, "hardly a scan succeeded"
