"""The environment of the integrations, and a server for them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flight_server.sql.served_sql import SqlServer

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def environment() -> Path:
    """The folder of the environment, in which dbt and dlt are installed."""
    make = ["make", "-s", "integrations/.venv/.installed"]
    subprocess.run(["flock", "integrations/README.md", *make], cwd=ROOT, check=True)
    return ROOT / "integrations" / ".venv"


@pytest.fixture
def server() -> Iterator[SqlServer]:
    served = SqlServer(sql_timeout_seconds=60.0)
    yield served
    served.close()
