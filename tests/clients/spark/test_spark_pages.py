"""Spark reads pages and patches of every kind, with the shim and without: see tests/campaigns/matrix."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from nyala.clients.api.database import Database
from tests.campaigns.matrix.page_table import STATES, PageTable
from tests.campaigns.matrix.pages import page_columns, planned
from tests.campaigns.matrix.test_matrix import check_cells

pytestmark = pytest.mark.spark

Load = Callable[..., DataFrame]


def test_spark_finds_every_page_under_every_patch(load: Load, plain: Load, db: Database) -> None:
    table = PageTable(db, page_columns())
    with planned(table.by_id):
        for state in STATES[: STATES.index("patched in files and in memory") + 1]:
            table.step(state)
    for frame in (load("pages"), plain("pages")):
        found = frame.toArrow().cast(table.rows.schema).sort_by("id")
        check_cells(found.combine_chunks(), table.rows)
