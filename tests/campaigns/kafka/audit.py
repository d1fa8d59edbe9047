"""What the campaign finds in the store: the positions at a moment with their rows, and everything at the end."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import nyala
from nyala.clients.api.database import Database
from nyala.schemas.errors import StoreError
from tests.campaigns.kafka.load import BAD_EVERY, Load, bad_below, is_bad, text_of

SCHEMA = pa.schema(
    [
        pa.field("part", pa.int32(), False),
        pa.field("number", pa.int64(), False),
        ("text", pa.string()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
    ]
)


class Audit:
    """Looks into the store at ``url``."""

    def __init__(self, url: str, topic: str, partitions: int) -> None:
        self._url = url
        self._topic = topic
        self._partitions = partitions
        self.moments = 0
        """How many moments were looked at."""
        self.rejects = 0

    def positions(self) -> dict[int, int]:
        """Return the next offset of each partition in the store; nothing if it does not answer now."""
        try:
            with nyala.connect(self._url) as database:
                return self._positions(database, None)
        except StoreError:
            return {}

    def _positions(self, database: Database, moment: int | None) -> dict[int, int]:
        if "nyala_sources" not in database.list_tables():
            return {}
        scan = database.table("nyala_sources").scan(columns=["source", "position"], as_of=moment)
        return {int(row["source"].rpartition("/")[2]): int(row["position"]) for row in scan.to_arrow().to_pylist()}

    def check_moment(self) -> None:
        """Compare the rows and rejects of a moment with its positions: offsets are stored in the commit of their rows.

        Raises:
            AssertionError: a position is not that of the rows.
        """
        try:
            with nyala.connect(self._url) as database:
                moment = database.now()
                positions = self._positions(database, moment)
                if not positions:
                    return
                parts = database.table(self._topic).scan(columns=["part"], as_of=moment).to_arrow()["part"].to_numpy()
                bad = database.table("nyala_rejects").scan(columns=["partition"], as_of=moment).to_arrow()["partition"]
        except StoreError:
            return
        self.moments += 1
        rows = np.bincount(parts, minlength=self._partitions)
        rejects = np.bincount(bad.to_numpy(), minlength=self._partitions)
        for part, position in positions.items():
            expected = (position - bad_below(position), bad_below(position))
            seen = (int(rows[part]), int(rejects[part]))
            assert seen == expected, (
                f"at one moment partition {part} is at {position}, with {seen[0]} rows and {seen[1]} rejects, "
                f"not {expected[0]} and {expected[1]}"
            )

    def check_end(self, load: Load) -> None:
        """Compare all rows, rejects and positions with what was sent.

        Raises:
            AssertionError: a message is missing, came twice, or differs.
        """
        with nyala.connect(self._url) as database:
            rejects = database.table("nyala_rejects").scan().to_arrow().to_pylist()
            rows = database.table(self._topic).scan().to_arrow().combine_chunks()
            positions = self._positions(database, None)
        twice = [row["reason"] for row in rejects if "not JSON" not in row["reason"]]
        assert not twice, f"{len(twice)} messages came twice: {twice[:2]}"
        bad = {(row["partition"], row["offset"]) for row in rejects}
        expected = {(part, number) for part, count in enumerate(load.sent) for number in range(count) if is_bad(number)}
        assert bad == expected and len(rejects) == len(bad), f"{len(bad)} rejects, and {len(expected)} bad messages"
        self.rejects = len(bad)
        part, number = (rows[name].to_numpy() for name in ("part", "number"))
        for at, count in enumerate(load.sent):
            there = np.sort(number[part == at])
            all_of_it = np.arange(count)
            good = all_of_it[all_of_it % BAD_EVERY != BAD_EVERY - 1]
            lost = np.setdiff1d(good, there)
            assert len(there) == len(good) and not len(lost), f"partition {at} lost {len(lost)}: {lost[:3]}"
        assert positions == dict(enumerate(load.sent)), f"the store is at {positions}"
        assert np.array_equal(number, rows["kafka_offset"].to_numpy())
        assert np.array_equal(part, rows["kafka_partition"].to_numpy())
        texts = pa.array([text_of(*pair) for pair in zip(part.tolist(), number.tolist(), strict=True)])
        assert rows["text"].combine_chunks().equals(texts), "a text differs"
