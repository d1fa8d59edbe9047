"""Copies of a whole store at one moment, on the same disk or in a bucket.

Not inside: backups of tables, which are jobs (`clients/jobs/backup`). The store's door and the job that copies a store
use it.
"""
