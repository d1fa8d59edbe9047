"""How a table is divided into tablets: arguments of ``create_table(partition_by=...)``.

db.create_table("flights", schema, ["carrier", "flight"], partition_by=[nyala.partition.hash("carrier", buckets=4)])
"""

from nyala.schemas.table.partition import HashLevel, RangeBound, RangeLevel, hash, range

__all__ = ["HashLevel", "RangeBound", "RangeLevel", "hash", "range"]
