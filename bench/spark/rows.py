"""The rows that are measured, made by Spark itself: five columns, about 42 bytes a row in Arrow.

id      bigint     the key, ascending
k       int        1,000 values
v       double     two decimals, evenly spread
at      timestamp  rising, one a millisecond
name    string     10 bytes, 100,000 values
"""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

TABLETS = 8
TASKS = 8
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("k", pa.int32()),
        pa.field("v", pa.float64()),
        pa.field("at", pa.timestamp("us")),
        pa.field("name", pa.string()),
    ]
)
_FIRST_MICROSECOND = 1_700_000_000_000_000


def generated(spark: SparkSession, rows: int) -> DataFrame:
    """Return ``rows`` rows, the same each time."""
    noise = f.xxhash64("id")
    return spark.range(0, rows, 1, TASKS).select(
        "id",
        f.pmod(noise, f.lit(1_000)).cast("int").alias("k"),
        (f.pmod(noise, f.lit(10_000_000)) / 100).alias("v"),
        f.timestamp_micros(f.col("id") * 1_000 + _FIRST_MICROSECOND).alias("at"),
        f.concat(f.lit("name-"), f.lpad(f.pmod(noise, f.lit(100_000)).cast("string"), 5, "0")).alias("name"),
    )
