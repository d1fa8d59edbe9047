"""dbt on a server: its example project, by dbt's own command, in an environment of its own."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from nyala.clients.api.database import Database
from tests.flight_server.sql.served_sql import SqlServer

pytestmark = [pytest.mark.night, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
Dbt = Callable[..., tuple[int, str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "integrations" / "dbt" / "example", tmp_path / "homes"))


@pytest.fixture
def dbt(environment: Path, server: SqlServer, project: Path) -> Dbt:
    def run(*words: str, url: str = server.url) -> tuple[int, str]:
        folders = ["--project-dir", str(project), "--profiles-dir", str(project)]
        command = [str(environment / "bin" / "dbt"), "--no-use-colors", *words, *folders]
        variables = {**os.environ, "NYALA_URL": url, "NO_COLOR": "1", "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
        ran = subprocess.run(command, env=variables, capture_output=True, text=True)
        return ran.returncode, ran.stdout + ran.stderr

    return run


def _rows(db: Database, text: str) -> list[tuple]:
    return [tuple(row.values()) for row in db.sql(text).to_pylist()]


def test_a_project_is_built_again_over_more_rows(dbt: Dbt, server: SqlServer, project: Path) -> None:
    (project / "models" / "late_key.sql").write_text(
        "{{ config(materialized='incremental', unique_key='home') }} "
        "select nullif(city, 'Oslo') as city, home from {{ ref('latest') }}"
    )
    code, output = dbt("build")
    assert (code, "PASS=11 WARN=0 ERROR=0" in output) == (0, True), output
    assert _rows(server.db, "SELECT city, sales FROM cities ORDER BY city") == [("Bergen", 1), ("Oslo", 2)]
    described = server.store.describe_table("raw_sales")
    assert described.primary_key == ["sale"] and described.unique_key
    assert described.options.history_max_age_seconds == 172_800 and len(described.partitions) == 1

    with (project / "seeds" / "raw_sales.csv").open("a") as file:
        file.write("4,11,Bergen,90,2026-01-04 10:00:00\n5,12,Alta,70,2026-01-04 11:00:00\n")
    code, output = dbt("build")
    assert (code, "PASS=11 WARN=0 ERROR=0" in output) == (0, True), output
    assert _rows(server.db, "SELECT home, CAST(price AS int) FROM homes ORDER BY home") == [
        (10, 120),
        (11, 90),
        (12, 70),
    ]
    assert _rows(server.db, "SELECT sale, home FROM sightings ORDER BY sale") == [
        (1, 10),
        (2, 11),
        (3, 10),
        (4, 11),
        (5, 12),
    ]
    assert _rows(server.db, "SELECT home, city FROM late_key ORDER BY home") == [
        (10, None),
        (11, "Bergen"),
        (12, "Alta"),
    ]
    versions = "SELECT home, CAST(price AS int), dbt_valid_to IS NULL FROM prices ORDER BY home, dbt_valid_from"
    assert _rows(server.db, versions) == [(10, 120, True), (11, 80, False), (11, 90, True), (12, 70, True)]
    assert server.db.tables() == ["cities", "homes", "late_key", "prices", "raw_sales", "sightings"]  # no scratch table

    code, output = dbt("docs", "generate")
    assert code == 0, output
    assert '"auto_incrementing_id"' in (project / "target" / "catalog.json").read_text()


def test_a_seed_has_the_types_that_the_project_names(dbt: Dbt, server: SqlServer, project: Path) -> None:
    types = {
        "a": "integer",
        "b": "bigint",
        "c": "float",
        "d": "double precision",
        "e": "boolean",
        "f": "date",
        "g": "timestamp",
        "h": "numeric(10, 2)",
        "i": "text",
    }
    columns = ", ".join(f"{name}: '{kind}'" for name, kind in types.items())
    (project / "seeds" / "typed.csv").write_text(
        "a,b,c,d,e,f,g,h,i\n"
        "1,9007199254740993,1.5,1e3,true,2026-01-02,2026-01-02 03:04:05.6,1.50,007\n"
        "2,,,,no,,2026-01-02T03:04:05+01:00,,x\n"
    )
    (project / "seeds" / "typed.yml").write_text(
        f"seeds: [{{name: typed, config: {{primary_key: a, column_types: {{{columns}}}}}}}]"
    )
    code, output = dbt("seed", "--select", "typed")
    assert code == 0, output
    day, at = dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 3, 4, 5, 600_000)
    assert _rows(server.db, "SELECT * FROM typed ORDER BY a") == [
        (1, 9007199254740993, 1.5, 1000.0, True, day, at, Decimal("1.50"), "007"),
        (2, None, None, None, False, None, dt.datetime(2026, 1, 2, 2, 4, 5), None, "x"),
    ]
    (project / "seeds" / "typed.csv").write_text("a,b,c,d,e,f,g,h,i\none,,,,,,,,\n")
    code, output = dbt("seed", "--select", "typed")
    assert code == 1 and "column 'a' of the seed does not fit its type int32" in output


def test_columns_follow_a_model(dbt: Dbt, server: SqlServer, project: Path) -> None:
    code, output = dbt("build")
    assert code == 0, output
    model = project / "models" / "homes.sql"
    text = model.read_text().replace("seen from", "seen, upper(city) as town from").replace(" > ", " >= ")
    model.write_text(text)
    code, output = dbt("run", "--select", "homes")
    assert code == 0, output
    assert _rows(server.db, "SELECT home, town FROM homes ORDER BY home") == [(10, "OSLO"), (11, None)]
    model.write_text(text.replace("append_new_columns", "fail").replace(", upper(city) as town", ""))
    code, output = dbt("run", "--select", "homes")
    assert code == 1 and "out of sync" in output
    code, output = dbt("run", "--select", "homes", "--full-refresh")
    assert code == 0, output
    assert "town" not in server.db.table("homes").schema.names


def test_refusals_say_what_to_do(dbt: Dbt, server: SqlServer, project: Path) -> None:
    models = project / "models"
    (models / "seen.sql").write_text("{{ config(materialized='view') }} select 1 as a")
    (models / "keyed.sql").write_text("{{ config(primary_key='b') }} select 1 as a")
    (models / "merged.sql").write_text(
        "{{ config(materialized='incremental', incremental_strategy='merge') }} select 1 as a"
    )
    (models / "wrong.sql").write_text("select nope from {{ ref('raw_sales') }}")
    (models / "again.sql").write_text("select * from {{ ref('sightings') }}")
    code, output = dbt("build", "--select", "raw_sales", "sightings", "seen", "keyed", "merged", "wrong", "again")
    assert code == 1
    for sentence in (
        "seen: there are no views: set materialized to 'table', 'incremental' or 'ephemeral'",
        "there is no column 'b' for the key; there are: a",
        "incremental_strategy 'merge' needs a unique_key",
        "INVALID_ARGUMENT: there is no column 'nope'",
    ):
        assert sentence in output, sentence
    assert "Detail" not in output and "FlightSQL" not in output
    assert _rows(server.db, "SELECT sale FROM again ORDER BY 1") == [(1,), (2,), (3,)]


def test_a_failing_test_fails_the_build(dbt: Dbt, project: Path) -> None:
    with (project / "seeds" / "raw_sales.csv").open("a") as file:
        file.write("4,11,,90,2026-01-04 10:00:00\n")
    (project / "models" / "models.yml").write_text(
        "models: [{name: sightings, columns: [{name: home, data_tests: [unique]}]}]"
    )
    code, output = dbt("build", "--select", "raw_sales", "sightings")
    assert code == 1 and "Got 2 results, configured to fail if != 0" in output


def test_a_server_that_is_not_there(dbt: Dbt) -> None:
    code, output = dbt("debug", url="grpc://127.0.0.1:1")
    assert code == 1 and "no connection to grpc://127.0.0.1:1: " in output and "connection refused" in output
