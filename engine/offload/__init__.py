"""Work on a store's files by other processes, seen from the store: leases, and what comes back.

`bulk` attaches files that were built outside, `direct` lends files to readers, `merge` installs merges. Not inside: the
other process's side (`clients/offline_jobs`). The store's door uses it.
"""
