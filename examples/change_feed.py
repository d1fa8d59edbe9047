"""Follow a table: every call of ``changes`` continues where the last one ended.

python examples/change_feed.py
"""

import tempfile
from typing import Any

import pyarrow as pa

import nyala


class Follower:
    """Keeps a copy of a table up to date from its change feed."""

    def __init__(self, table: nyala.Table, since: int) -> None:
        """``since`` is a moment before the first row, or the one of a scan that filled ``rows``."""
        self.table = table
        self.since = since
        self.rows: dict[str, dict[str, Any]] = {}

    def catch_up(self) -> list[str]:
        """Apply what changed since the last call; return the operations."""
        feed = self.table.changes(self.since, ordered=True)
        operations = []
        for change in feed.to_arrow().to_pylist():
            operation, timestamp = change.pop("_op"), change.pop("_timestamp")
            assert self.since < timestamp
            if operation in ("delete", "expire"):
                del self.rows[change["sku"]]
            else:
                self.rows[change["sku"]] = change
            operations.append(f"{operation} {change['sku']}")
        assert feed.snapshot is not None, "a feed ends at a moment, also when nothing changed"
        self.since = feed.snapshot
        return operations


def main() -> None:
    schema = pa.schema({"sku": pa.string(), "stock": pa.int32()})
    with tempfile.TemporaryDirectory() as folder, nyala.open(folder) as db:
        shelf = db.create_table("shelf", schema, primary_key=["sku"])
        start = db.now()
        copy = Follower(shelf, start)

        shelf.insert({"sku": ["apple", "pear"], "stock": [10, 4]})
        print(copy.catch_up())

        shelf.update({"sku": ["apple"], "stock": [3]})
        shelf.maintain("flush")
        shelf.delete({"sku": ["pear"]})
        shelf.insert({"sku": ["plum"], "stock": [7]})
        shelf.delete({"sku": ["plum"]})  # inserted and deleted between two calls: no net change
        assert copy.catch_up() == ["update apple", "delete pear"]
        assert copy.catch_up() == []
        assert list(copy.rows.values()) == shelf.scan(ordered=True).to_arrow().to_pylist()

        # Every commit, with the values before it.
        audit = shelf.changes(start, every=True, before=True, ordered=True).to_arrow().to_pylist()
        for change in audit:
            print(f"{change['_op']:6} {change['sku']:5} {change['_before_stock']} -> {change['stock']}")
        assert [change["_op"] for change in audit if change["sku"] == "plum"] == ["insert", "delete"]


if __name__ == "__main__":
    main()
