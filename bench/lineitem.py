"""The table lineitem of TPC-H, made after section 4.2.3 of its specification; scale 1 has some 6 million rows.

Keys, dates, prices, flags and modes are drawn as the specification says; comments are pieces of one text made of some
of its words. It is not dbgen's output byte for byte: no answers of the 22 queries can be compared with it.
"""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KEY = ("l_orderkey", "l_linenumber")
MONEY = pa.decimal128(12, 2)
SCHEMA = pa.schema(
    [
        pa.field("l_orderkey", pa.int64(), nullable=False),
        pa.field("l_linenumber", pa.int32(), nullable=False),
        pa.field("l_partkey", pa.int64()),
        pa.field("l_suppkey", pa.int64()),
        pa.field("l_quantity", MONEY),
        pa.field("l_extendedprice", MONEY),
        pa.field("l_discount", MONEY),
        pa.field("l_tax", MONEY),
        pa.field("l_returnflag", pa.string()),
        pa.field("l_linestatus", pa.string()),
        pa.field("l_shipdate", pa.date32()),
        pa.field("l_commitdate", pa.date32()),
        pa.field("l_receiptdate", pa.date32()),
        pa.field("l_shipinstruct", pa.string()),
        pa.field("l_shipmode", pa.string()),
        pa.field("l_comment", pa.string()),
    ]
)
ROWS_A_SCALE = 6_000_000
PARTS_A_SCALE, SUPPLIERS_A_SCALE = 200_000, 10_000
FIRST_DAY, LAST_ORDER_DAY, TODAY = 8_035, 10_440, 9_298  # 1992-01-01, 1998-08-02, 1995-06-17, in days since 1970
INSTRUCTIONS = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"]
MODES = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"]
WORDS = re.findall(
    r"\w+",
    """
    packages requests accounts deposits foxes ideas theodolites pinto beans instructions dependencies excuses
    platelets asymptotes courts dolphins multipliers sauternes warthogs frets dinos attainments somas sleep wake are
    cajole haggle nag use boost affix detect integrate furiously sly careful blithe quick fluffy slow quiet ruthless
    thin close dogged daring brave stealthy permanent enticing idle busy regular final ironic even bold silent about
    above according to across after against along
    """,
)
POOL_WORDS = 200_000
COMMENT_BYTES = (10, 43)


def lineitems(rows: int, seed: int = 0) -> pa.Table:
    """Return about ``rows`` rows (whole orders of 1 to 7 lines) in the order of their key."""
    random = np.random.default_rng(seed)
    lines = random.integers(1, 8, max(1, rows // 4))
    orders, count = len(lines), int(lines.sum())
    order = np.repeat(np.arange(orders), lines)
    number = (np.arange(count) - np.repeat(np.cumsum(lines) - lines, lines) + 1).astype(np.int32)
    scale = max(rows / ROWS_A_SCALE, 0.001)
    part = random.integers(1, int(PARTS_A_SCALE * scale) + 1, count)
    quantity = random.integers(1, 51, count)
    retail_cents = 90_000 + (part // 10) % 20_001 + 100 * (part % 1_000)
    ordered = np.repeat(random.integers(FIRST_DAY, LAST_ORDER_DAY + 1, orders), lines)
    shipped = ordered + random.integers(1, 122, count)
    received = shipped + random.integers(1, 31, count)
    returned = np.where(received <= TODAY, random.integers(0, 2, count), 2)
    columns = [
        pa.array(order // 8 * 32 + order % 8 + 1),  # eight orders of each 32 exist
        pa.array(number),
        pa.array(part),
        pa.array(random.integers(1, int(SUPPLIERS_A_SCALE * scale) + 1, count)),
        _money(quantity * 100),
        _money(quantity * retail_cents),
        _money(random.integers(0, 11, count)),
        _money(random.integers(0, 9, count)),
        _picked(["R", "A", "N"], returned),
        _picked(["F", "O"], (shipped > TODAY).astype(np.int64)),
        _dates(shipped),
        _dates(ordered + random.integers(30, 91, count)),
        _dates(received),
        _picked(INSTRUCTIONS, random.integers(0, len(INSTRUCTIONS), count)),
        _picked(MODES, random.integers(0, len(MODES), count)),
        _comments(random, count),
    ]
    return pa.table(columns, schema=SCHEMA)


def changed(table: pa.Table, share: float, seed: int) -> pa.Table:
    """Return whole rows for a random ``share`` of the keys, with new quantities and prices."""
    random = np.random.default_rng(seed)
    count = max(1, int(table.num_rows * share))
    picked = table.take(pa.array(random.choice(table.num_rows, count, replace=False)))
    quantity = random.integers(1, 51, count)
    for name, cents in (("l_quantity", quantity * 100), ("l_extendedprice", quantity * 123_456)):
        place = SCHEMA.get_field_index(name)
        picked = picked.set_column(place, SCHEMA.field(place), _money(cents))
    return picked.combine_chunks()


def _money(cents: np.ndarray) -> pa.Array:
    """Return cents as decimals: 16 bytes each, the low eight first."""
    words = np.zeros((len(cents), 2), np.int64)
    words[:, 0] = cents
    return pa.Array.from_buffers(MONEY, len(cents), [None, pa.py_buffer(words)])


def _dates(days: np.ndarray) -> pa.Array:
    return pa.array(days.astype(np.int32)).cast(pa.date32())


def _picked(words: list[str], places: np.ndarray) -> pa.Array:
    return pc.take(pa.array(words), pa.array(places))


def _comments(random: np.random.Generator, count: int) -> pa.Array:
    """Return pieces of one long text, which begin and end anywhere, as the specification has it."""
    text = " ".join(np.array(WORDS)[random.integers(0, len(WORDS), POOL_WORDS)].tolist()).encode()
    pool = np.frombuffer(text, np.uint8)
    lengths = random.integers(COMMENT_BYTES[0], COMMENT_BYTES[1] + 1, count)
    starts = random.integers(0, len(pool) - COMMENT_BYTES[1], count)
    ends = np.cumsum(lengths)
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    places = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(pool[places])])
