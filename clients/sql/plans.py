"""The plans of recent queries: what each of them needs of its tables."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import pyarrow as pa

from .leaves.planning import Need

_PLANS_MAX = 128


class QueryPlan:
    """What an SQL query needs of its tables, as DataFusion planned it once."""

    def __init__(self, wanted: dict[str, Need], text: str, schema: pa.Schema | None) -> None:
        self.wanted = wanted
        self.text = text
        """What DataFusion runs."""
        self.schema = schema
        """Names and types of the answer."""
        self.is_checked = False
        """Whether the query, planned over its rows, read no column besides."""


class QueryPlans:
    """The plans of recent SQL queries without parameters, as long as their tables are not altered. Queries whose
    functions change from run to run are not kept: DataFusion computes them as it plans. Thread safe."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Any, QueryPlan] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: Any) -> QueryPlan | None:
        """Return the plan of a query; None if there is none."""
        with self._lock:
            plan = self._plans.get(key)
            if plan is not None:
                self._plans.move_to_end(key)
            return plan

    def keep(self, key: Any, plan: QueryPlan) -> None:
        """Keep a plan for the next time."""
        with self._lock:
            self._plans[key] = plan
            if len(self._plans) > _PLANS_MAX:
                self._plans.popitem(last=False)
