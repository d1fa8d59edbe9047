"""Read a table as it was: every commit has a timestamp, and ``as_of`` takes any of them.

python examples/time_travel.py
"""

import tempfile

import pyarrow as pa

import nyala


def main() -> None:
    schema = pa.schema({"sku": pa.string(), "stock": pa.int32()})
    with tempfile.TemporaryDirectory() as folder, nyala.open(folder) as db:
        shelf = db.create_table("shelf", schema, primary_key=["sku"])

        opening = shelf.insert({"sku": ["apple", "pear"], "stock": [10, 4]})
        noon = shelf.update({"sku": ["apple"], "stock": [3]})
        shelf.delete({"sku": ["pear"]})

        def stock(as_of: int | None = None) -> dict[str, int]:
            table = shelf.scan(as_of=as_of, ordered=True).to_arrow()
            return dict(zip(table["sku"].to_pylist(), table["stock"].to_pylist(), strict=True))

        print("at opening", stock(opening.timestamp))
        print("at noon   ", stock(noon.timestamp))
        print("now       ", stock())

        # Writing rows to disk changes no moment.
        shelf.maintain("flush")
        assert stock(opening.timestamp) == {"apple": 10, "pear": 4}
        assert stock(noon.timestamp) == {"apple": 3, "pear": 4}
        assert stock() == {"apple": 3}


if __name__ == "__main__":
    main()
