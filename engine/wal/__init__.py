"""The write-ahead log: groups of records, chained and checksummed, one sync for all who wait."""
