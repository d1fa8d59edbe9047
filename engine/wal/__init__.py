"""The write-ahead log: groups of records, chained and checksummed, with one sync for all waiting writers.

Also the replacement of a damaged log by a new one, all or nothing (`replacement`).
"""
