"""dlt into a server: loads by its own pipelines, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nyala.clients.api.database import Database
from tests.flight_server.sql.served_sql import SqlServer

pytestmark = [pytest.mark.night, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
Script = Callable[..., tuple[int, str]]

PRELUDE = """
import sys, decimal, datetime
import dlt, dlt_nyala, pyarrow as pa

def pipeline(name="shop", **options):
    return dlt.pipeline(name, destination=dlt_nyala.nyala(sys.argv[1]), pipelines_dir=sys.argv[2], **options)

def merge(rows, table="orders", **how):
    pipeline().run(rows, table_name=table, write_disposition="merge", primary_key="id", **how)
"""


@pytest.fixture
def script(environment: Path, server: SqlServer, tmp_path: Path) -> Script:
    """Runs Python with dlt, after ``PRELUDE``."""

    def run(text: str, folder: str = "pipelines") -> tuple[int, str]:
        variables = {**os.environ, "RUNTIME__DLTHUB_TELEMETRY": "false", "LOAD__WORKERS": "2"}
        command = [str(environment / "bin" / "python"), "-c", PRELUDE + text, server.url, str(tmp_path / folder)]
        ran = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
        return ran.returncode, ran.stdout + ran.stderr

    return run


def _loaded(script: Script, text: str, **how: str) -> None:
    code, output = script(text, **how)
    assert code == 0, output[-3000:]


def _column(db: Database, table: str, column: str) -> list[Any]:
    return sorted(db.table(table).scan([column]).to_arrow()[column].to_pylist(), key=str)


def test_rows_merge_with_their_nested_rows(script: Script, server: SqlServer) -> None:
    _loaded(
        script,
        "merge([{'id': 1, 'items': [{'sku': 'x'}, {'sku': 'y'}]}, {'id': 2, 'items': [{'sku': 'z'}]},"
        " {'id': 3, 'items': [{'sku': 'w'}]}])\n"
        "merge([{'id': 1, 'items': [{'sku': 'x2'}]}, {'id': 2, 'items': []}, {'id': 4, 'note': 'new'}])",
    )
    assert _column(server.db, "orders", "id") == [1, 2, 3, 4]
    assert _column(server.db, "orders", "note") == [None, None, None, "new"]
    assert _column(server.db, "orders__items", "sku") == ["w", "x2"]
    assert server.db.table("orders").primary_key == ["id"]
    assert len(server.db.commits("orders")) == 2


def test_marked_rows_are_deleted_with_their_nested_rows(script: Script, server: SqlServer) -> None:
    _loaded(
        script,
        "columns = {'gone': {'hard_delete': True, 'data_type': 'bool'}}\n"
        "merge([{'id': 1, 'gone': False, 'k': [{'a': 1}]}, {'id': 2, 'gone': False, 'k': [{'a': 2}]}],"
        " columns=columns)\n"
        "merge([{'id': 1, 'gone': True, 'k': [{'a': 1}]}, {'id': 3, 'gone': None},"
        " {'id': 4, 'gone': True}, {'id': 4, 'gone': False}], columns=columns)",
    )
    assert _column(server.db, "orders", "id") == [2, 3, 4]  # of two rows with one key the last counts
    assert _column(server.db, "orders__k", "a") == [2]


def test_rows_that_are_there_stay_with_insert_only(script: Script, server: SqlServer) -> None:
    _loaded(
        script,
        "how = {'disposition': 'merge', 'strategy': 'insert-only'}\n"
        "for v in (1, 2):\n"
        "    rows = [{'id': 1, 'v': v}, {'id': v + 5, 'v': v}]\n"
        "    pipeline().run(rows, table_name='orders', write_disposition=how, primary_key='id')",
    )
    assert server.db.sql("SELECT id, v FROM orders ORDER BY id").to_arrow().to_pydict() == {
        "id": [1, 6, 7],
        "v": [1, 1, 2],
    }


def test_a_replace_is_one_commit(script: Script, server: SqlServer) -> None:
    _loaded(
        script,
        "for rows in ([{'x': 1, 'l': [1, 2]}, {'x': 2, 'l': []}], [{'x': 5, 'l': []}]):\n"
        "    pipeline().run(rows, table_name='t', write_disposition='replace')",
    )
    assert _column(server.db, "t", "x") == [5] and server.db.table("t__l").count() == 0
    commits = server.db.commits("t").select(["inserted", "deleted"]).to_pylist()
    assert commits == [{"inserted": 2, "deleted": 0}, {"inserted": 1, "deleted": 2}]
    assert server.db.commits("t")["timestamp"][1] == server.db.commits("t__l")["timestamp"][1]
    _loaded(
        script,
        "@dlt.resource(name='t', write_disposition='replace')\n"
        "def none():\n"
        "    return\n"
        "    yield\n"
        "pipeline().run(none())",
    )
    assert server.db.table("t").count() == 0


def test_rows_that_are_alike_are_appended(script: Script, server: SqlServer) -> None:
    _loaded(
        script,
        "text, small = pa.array(['x', None], pa.large_string()), pa.array([1, 2], 'uint8')\n"
        "rows = pa.table({'a': [None, 2.5], 's': text, 'u': small})\n"
        "for _ in range(2):\n"
        "    pipeline(dataset_name='lab').run(rows, table_name='t')\n"
        "moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)\n"
        "row = {'at': moment, 't': moment.time(), 'day': moment.date(), 'b': b'x', 'ok': True}\n"
        "row['d'] = decimal.Decimal('1.5')\n"
        "pipeline(dataset_name='lab').run([row], table_name='types')",
    )
    table = server.db.table("lab___t")
    assert table.primary_key == ["_dlt_load_id", "auto_incrementing_id"]
    assert _column(server.db, "lab___t", "s") == [None, None, "x", "x"]
    kinds = {field.name: str(field.type) for field in server.db.table("lab___types").schema}
    assert {kinds[name] for name in ("at", "d", "t", "day", "b", "ok")} == {
        "timestamp[us]",
        "decimal128(38, 9)",
        "string",
        "date32[day]",
        "binary",
        "bool",
    }
    assert _column(server.db, "lab___types", "t") == ["03:04:05.000000"]


def test_an_incremental_source_goes_on_elsewhere(script: Script, server: SqlServer) -> None:
    text = (
        "@dlt.resource(name='t')\n"
        "def numbers(n=dlt.sources.incremental('n', initial_value=0)):\n"
        "    yield [{'n': n.last_value + i} for i in range(3)]\n"
        "pipeline(dataset_name='lab').run(numbers())"
    )
    for folder in ("here", "there"):  # the state comes from the server
        _loaded(script, text, folder=folder)
    assert _column(server.db, "lab___t", "n") == [0, 1, 2, 3, 4]


def test_a_job_that_runs_twice_writes_once(script: Script, server: SqlServer) -> None:
    _loaded(
        script,
        "from nyala.clients.api.transaction import Transaction\n"
        "from nyala.schemas.errors import UnavailableError\n"
        "commit, lost = Transaction.commit, set()\n"
        "def losing(transaction):\n"
        "    result = commit(transaction)\n"
        "    if transaction.id not in lost:\n"
        "        lost.add(transaction.id)\n"
        "        raise UnavailableError('the answer is lost')\n"
        "    return result\n"
        "Transaction.commit = losing\n"
        "pipeline().run([{'x': 1, 'l': [1, 2]}], table_name='t')\n"
        "pipeline().run([{'x': 1}], table_name='r', write_disposition='replace')\n"
        "assert len(lost) >= 4, lost",
    )
    assert _column(server.db, "t", "x") == [1] and _column(server.db, "t__l", "value") == [1, 2]
    assert len(server.db.commits("r")) == 1


def test_a_refresh_drops_tables(script: Script, server: SqlServer) -> None:
    _loaded(
        script,
        "pipeline().run([{'x': 1}], table_name='t')\n"
        "pipeline().run([{'y': 1}], table_name='t', refresh='drop_resources')",
    )
    assert "x" not in server.db.table("t").schema.names and _column(server.db, "t", "y") == [1]


REFUSED = {
    "pipeline().run([{'id': 1}], table_name='t', write_disposition='merge')": "No primary key defined for table `t`",
    "pipeline().run([{'id': 1}], table_name='t'); merge([{'id': 1}], 't')": "be merged into the table 't' by (id)",
    "merge([{'id': 1.5}], 't')": "key column 'id' cannot be a key: it has the type double",
    "pipeline().run([{'id': 1, 't': 'x' * 100_000}], table_name='t')": "column 't' has more than 65,536 bytes",
    "pipeline().run(pa.table({'l': [[1]]}), table_name='t')": "column 'l' is list<element: int64>",
    "dlt.pipeline('p', destination=dlt_nyala.nyala('grpc://127.0.0.1:1'), pipelines_dir=sys.argv[2]).run([{'x': 1}],"
    " table_name='t')": "the server cannot be reached",
}


@pytest.mark.parametrize("text", REFUSED, ids=["no key", "another key", "float key", "long text", "list", "no server"])
def test_a_load_is_refused(script: Script, text: str) -> None:
    code, output = script(text)
    assert code == 1 and REFUSED[text] in output, output[-3000:]


def test_the_example_loads_twice(environment: Path, server: SqlServer, tmp_path: Path) -> None:
    command = [str(environment / "bin" / "python"), str(ROOT / "integrations/dlt/example/shop.py"), server.url]
    variables = {**os.environ, "HOME": str(tmp_path), "RUNTIME__DLTHUB_TELEMETRY": "false"}
    ran = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert _column(server.db, "orders", "customer") == ["Ada", "Edsger", "Grace"]
    assert _column(server.db, "orders__items", "sku") == ["desk", "lamp"]
