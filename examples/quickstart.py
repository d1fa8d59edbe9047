"""Create a table, change it, read it: the store inside this process.

    python examples/quickstart.py

Leaves the data in ./quickstart-data; run it again to see that it is still there.
"""

import pyarrow as pa

import nyala

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("price", pa.float64()),
    ]
)


def main() -> None:
    with nyala.open("quickstart-data") as db:
        homes = db.create_table("homes", SCHEMA, primary_key=["id"], if_not_exists=True)

        # Anything columnar goes in; a dict of columns is the shortest.
        homes.upsert({"id": [1, 2, 3], "city": ["Oslo", "Bergen", "Oslo"], "price": [5.1, 3.9, 4.4]})

        # An upsert changes only the columns it brings.
        homes.upsert({"id": [2], "price": [4.2]})
        row = homes.get((2,))
        assert row == {"id": 2, "city": "Bergen", "price": 4.2}, row

        # A row that cannot be applied is reported with its position; the others are applied.
        try:
            homes.insert({"id": [3, 4], "city": ["Oslo", "Hamar"], "price": [1.0, 2.5]})
        except nyala.RowErrors as refused:
            for error in refused.result.errors:
                print(f"row {error.row}: {error.code}: {error.message}")

        homes.delete_ignore({"id": [4]})
        for batch in homes.scan(columns=["city", "price"], where="price > 4", ordered=True):
            print(batch.to_pydict())


if __name__ == "__main__":
    main()
