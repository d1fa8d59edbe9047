"""The places of the changes of a stretch of the log, which were looked up together before any of them was applied."""

from ..ahead.kernel import kernel
from ..simd.simd import view_i64, view_u8

SKIPPED, INSERTED, CHANGED = range(3)
"""What becomes of a row: files have it, or its row is gone; it is a new row; it changes a row."""


@kernel
def place_changes(stores, lsns, firsts, locations, count, row_bits, durable, inserts_durable, next_location, outcomes):
    """Decide for a replay what becomes of each row of logged changes, in the order of the log.

    ``stores`` (u1) is whether the change may insert it, ``firsts`` (int64) the first row with the same key.
    ``locations`` (int64) are where the keys were found, or -1; in the end they are where the rows go: new ones from
    ``next_location`` on. ``durable`` (int64) is the last lsn in the files of each slot, ``inserts_durable`` that up to
    which new rows are in files.
    """
    may_insert = view_u8(stores, count)
    lsn_of = view_i64(lsns, count)
    first_of = view_i64(firsts, count)
    location_of = view_i64(locations, count)
    outcome_of = view_u8(outcomes, count)
    location_to_come = next_location
    for i in range(count):
        first = first_of[i]
        location = location_of[first]
        outcome = SKIPPED
        if location >= 0:
            if lsn_of[i] > view_i64(durable + 8 * (location >> row_bits), 1)[0]:
                outcome = CHANGED
        elif may_insert[i] and lsn_of[i] > inserts_durable:
            location = location_to_come
            location_to_come += 1
            location_of[first] = location
            outcome = INSERTED
        location_of[i] = location
        outcome_of[i] = outcome
