"""The measured data is what its description says, and the same every time."""

import numpy as np

from bench import data


def test_orders_are_repeatable_and_unique() -> None:
    table = data.orders(5_000, seed=3)
    assert table.schema == data.SCHEMA and table.num_rows == 5_000
    assert table == data.orders(5_000, seed=3)
    assert table != data.orders(5_000, seed=4)
    assert len(np.unique(table["key"].to_numpy())) == 5_000


def test_chunks_join_without_a_seam(monkeypatch) -> None:
    monkeypatch.setattr(data, "CHUNK_ROWS", 700)
    table = data.orders(1_500)
    assert [len(chunk) for chunk in table["key"].chunks] == [700, 700, 100]
    moments = table["placed_at"].cast("int64").to_numpy()
    assert (np.diff(moments) > 0).all()


def test_references_have_the_width_told() -> None:
    lengths = {len(text) for text in data.orders(1_000)["reference"].to_pylist()}
    assert lengths == {20}


def test_changes_are_whole_rows_of_known_keys() -> None:
    table = data.orders(2_000)
    rows = data.changed(table, 0.01, seed=1)
    assert rows.schema == data.SCHEMA and rows.num_rows == 20
    by_key = dict(zip(table["key"].to_pylist(), table["reference"].to_pylist(), strict=True))
    assert all(by_key[row["key"]] == row["reference"] for row in rows.to_pylist())
    assert len(set(rows["key"].to_pylist())) == 20
