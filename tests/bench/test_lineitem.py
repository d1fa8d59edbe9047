"""TPC-H's lineitem keeps the rules of its specification."""

import numpy as np

from bench import lineitem


def test_keys_are_unique_and_sparse() -> None:
    table = lineitem.lineitems(5_000)
    table.validate(full=True)
    assert table.schema == lineitem.SCHEMA and 4_000 < table.num_rows < 6_000
    orders, lines = table["l_orderkey"].to_numpy(), table["l_linenumber"].to_numpy()
    assert len(set(zip(orders.tolist(), lines.tolist(), strict=True))) == table.num_rows
    assert (np.diff(orders) >= 0).all() and lines.min() == 1 and lines.max() == 7
    assert set(orders % 32) == set(range(1, 9))  # eight of each 32 keys


def test_dates_flags_and_prices_belong_together() -> None:
    rows = lineitem.lineitems(3_000).to_pylist()
    for row in rows:
        assert row["l_shipdate"] < row["l_receiptdate"]
        received = (row["l_receiptdate"] - row["l_shipdate"]).days
        assert 1 <= received <= 30
        assert (row["l_returnflag"] == "N") == (row["l_receiptdate"].isoformat() > "1995-06-17")
        assert (row["l_linestatus"] == "O") == (row["l_shipdate"].isoformat() > "1995-06-17")
        assert row["l_extendedprice"] * 100 % row["l_quantity"] == 0
        assert 10 <= len(row["l_comment"]) <= 43


def test_changes_are_whole_rows_of_known_keys() -> None:
    table = lineitem.lineitems(3_000)
    known = {(row["l_orderkey"], row["l_linenumber"]) for row in table.to_pylist()}
    changed = lineitem.changed(table, 0.01, seed=1)
    keys = [(row["l_orderkey"], row["l_linenumber"]) for row in changed.to_pylist()]
    assert changed.schema == lineitem.SCHEMA and len(set(keys)) == len(keys) == int(table.num_rows * 0.01)
    assert set(keys) <= known
