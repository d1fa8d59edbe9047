"""Jobs: long work on whole tables, in this process or on Spark executors.

Here lies what all jobs share: links to a store, splits, folders, leases, and the jobs that copy and balance. `files`
loads files and applies changes; `backup` backs up, restores, exports and verifies. `nyala.jobs` and commands use it.
"""
