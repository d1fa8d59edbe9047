"""What changed in a rowset since its base was written: columnar, by column id, in memory and on disk alike.

Liveness is a column too: system column ``LIVE`` (id 0, bool). A delete is an update of it to false, a re-insert an
update to true together with new values for all other columns. So one kind of delta, and one way to apply it, serves
updates, deletes, re-inserts and their undoing.
"""

LIVE = 0
"""The id of the system column that says whether a row exists; ids of user columns start at 1."""
