"""The eight tables of TPC-H by its own generator, their keys, and the 22 queries with the values that it validates.

``tpchgen-cli`` writes dbgen's rows as Parquet files. Queries are the same text for DuckDB and for Spark.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import nyala

KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
HASHED_BY = {"orders": "o_orderkey", "lineitem": "l_orderkey", "part": "p_partkey", "partsupp": "ps_partkey"}
"""Tables that are divided alike by what they are joined by."""
BUCKETS = 4
ROWS_A_SCALE = 10_000_000
"""``--rows`` of all suites, as a scale: 10 million are scale 1, whose largest table has 6 million."""
_QUERIES = Path(__file__).parent / "queries.sql"
_STOCK_SHARE = 0.0001
"""Of query 11, at scale 1."""


def generate(scale: float, folder: Path) -> None:
    """Write each table to a Parquet file in ``folder``."""
    beside = Path(sys.executable).with_name("tpchgen-cli")
    command = str(beside) if beside.exists() else shutil.which("tpchgen-cli") or "tpchgen-cli"
    subprocess.run([command, "parquet", "-s", str(scale), "--output-dir", str(folder)], check=True, capture_output=True)


def table(folder: Path, name: str) -> pa.Table:
    """Return a generated table, its key first."""
    found = pq.read_table(folder / f"{name}.parquet")
    plain = [each.with_type(pa.string()) if each.type == pa.string_view() else each for each in found.schema]
    names = [*KEYS[name], *(each for each in found.column_names if each not in KEYS[name])]
    return found.cast(pa.schema(plain)).select(names)


def load(database: nyala.Database, folder: Path) -> None:
    """Create all tables of ``database``, and fill them from generated files."""
    for name, key in KEYS.items():
        rows = table(folder, name)
        levels = [nyala.hash(HASHED_BY[name], buckets=BUCKETS)] if name in HASHED_BY else []
        target = database.create_table(name, rows.schema, primary_key=list(key), partition_by=levels)
        target.insert(rows)
        target.maintain("flush")


def queries(scale: float) -> dict[int, str]:
    """Return number -> text."""
    parts = re.split(r"^-- (\d+): .*$", _QUERIES.read_text(), flags=re.MULTILINE)[1:]
    fraction = f"{_STOCK_SHARE / scale:.10f}"
    return {
        int(number): text.strip().rstrip(";").replace("{fraction}", fraction)
        for number, text in zip(parts[::2], parts[1::2], strict=True)
    }
