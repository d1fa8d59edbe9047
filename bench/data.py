"""The data that is measured: orders, eight columns of the kinds that tables have.

    key        int64       unique, in random order
    placed_at  timestamp   rising, about one a millisecond
    status     string      8 values, evenly spread
    city       string      1,000 values, very unevenly spread
    price      double      two decimals
    reading    double      noise: nothing compresses it
    quantity   int32       0 to 9,999
    reference  string      20 bytes, nearly unique

About 83 bytes a row in Arrow. The same ``rows`` and ``seed`` give the same table on every machine.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CHUNK_ROWS = 1_000_000
KEY_GAP = 104_729
FIRST_MICROSECOND = 1_700_000_000_000_000

STATUSES = ["new", "paid", "shipped", "done", "cancelled", "returned", "hold", "fraud"]
CITIES = [f"city-{number:04d}" for number in range(1_000)]

SCHEMA = pa.schema(
    [
        pa.field("key", pa.int64(), nullable=False),
        pa.field("placed_at", pa.timestamp("us")),
        pa.field("status", pa.string()),
        pa.field("city", pa.string()),
        pa.field("price", pa.float64()),
        pa.field("reading", pa.float64()),
        pa.field("quantity", pa.int32()),
        pa.field("reference", pa.string()),
    ]
)
KEY = "key"


def orders(rows: int, seed: int = 0) -> pa.Table:
    """Return ``rows`` orders in chunks of ``CHUNK_ROWS``."""
    return pa.Table.from_batches(order_batches(rows, seed), SCHEMA)


def order_batches(rows: int, seed: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the same orders a chunk at a time: more rows than memory holds."""
    random = np.random.default_rng(seed)
    keys = random.permutation(rows) * KEY_GAP + random.integers(0, KEY_GAP, rows)
    for start in range(0, rows, CHUNK_ROWS):
        yield _chunk(keys[start : start + CHUNK_ROWS], start, random)


def changed(table: pa.Table, share: float, seed: int) -> pa.Table:
    """Return whole rows for a random ``share`` of the keys, with new prices and readings."""
    random = np.random.default_rng(seed)
    count = max(1, int(table.num_rows * share))
    rows = np.sort(random.choice(table.num_rows, count, replace=False))
    picked = table.take(pa.array(random.permutation(rows)))
    for name, values in (("price", _prices(random, count)), ("reading", random.normal(size=count))):
        place = SCHEMA.get_field_index(name)
        picked = picked.set_column(place, SCHEMA.field(place), pa.array(values))
    return picked.combine_chunks()


def _chunk(keys: np.ndarray, start: int, random: np.random.Generator) -> pa.RecordBatch:
    count = len(keys)
    microseconds = FIRST_MICROSECOND + (start + np.arange(count)) * 1_000 + random.integers(0, 1_000, count)
    columns = [
        pa.array(keys),
        pa.array(microseconds).cast(pa.timestamp("us")),
        pa.array(STATUSES).take(pa.array(random.integers(0, len(STATUSES), count))),
        pa.array(CITIES).take(pa.array(np.minimum(random.zipf(1.2, count), len(CITIES)) - 1)),
        pa.array(_prices(random, count)),
        pa.array(random.normal(size=count)),
        pa.array(random.integers(0, 10_000, count).astype(np.int32)),
        _references(random, count),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _prices(random: np.random.Generator, count: int) -> np.ndarray:
    return np.round(random.gamma(2, 50, count), 2)


def _references(random: np.random.Generator, count: int) -> pa.Array:
    def digits(width: int) -> pa.Array:
        return pc.utf8_lpad(pa.array(random.integers(0, 10**width, count)).cast(pa.string()), width, "0")

    return pc.binary_join_element_wise("user", digits(10), digits(4), "-")
