"""Changes in a rowset since its base was written: columnar, by column id, in memory and on disk.

Liveness is a column too: system column ``LIVE`` (id 0, bool). A delete updates it to false, a re-insert updates it to
true together with new values for all other columns. So one kind of delta, applied in one way, serves updates, deletes,
re-inserts and their reversal.
"""

LIVE = 0
"""The id of the system column with each row's liveness; ids of user columns start at 1."""
