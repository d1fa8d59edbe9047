"""docs/cli.md is true: its exit codes are those of the code."""

import re
from pathlib import Path

from nyala.clients.cli.run import EXIT_CODES
from nyala.schemas import errors

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def test_exit_codes() -> None:
    told = {
        word: int(code)
        for code, words in re.findall(r"^\| (\d+) \| (`[A-Z].*) \|$", PAGE, re.MULTILINE)
        for word in re.findall(r"`(\w+)`", words)
    }
    assert told == EXIT_CODES
    known = {
        leaf.code for leaf in vars(errors).values() if isinstance(leaf, type) and issubclass(leaf, errors.StoreError)
    }
    assert EXIT_CODES.keys() == known
