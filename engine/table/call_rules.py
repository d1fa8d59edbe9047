"""CallRules: the merge rules that calls bring along, remembered: small merges with the same rules come in numbers."""

from __future__ import annotations

from collections.abc import Mapping

from .formulas import MergeRules, merge_rules
from .table_version import TableVersion

_LETTERS_MAX = 1024
"""Longer rules are read each time."""
_CALLS_MAX = 32


class CallRules:
    """The rules of calls for one version of a table. Thread safe."""

    def __init__(self, version: TableVersion) -> None:
        self._schema = version.schema
        self._rules: dict[tuple[tuple[str, str], ...], MergeRules] = {}

    def of(self, texts: Mapping[str, str]) -> MergeRules:
        """Return the rules of ``texts``, by column. Raises InvalidArgumentError: one is invalid."""
        key = tuple(texts.items())
        if (rules := self._rules.get(key)) is not None:
            return rules
        rules = merge_rules(texts, self._schema)
        if sum(len(name) + len(text) for name, text in key) <= _LETTERS_MAX:
            if len(self._rules) >= _CALLS_MAX:
                self._rules.clear()
            self._rules[key] = rules
        return rules
