"""The write-ahead log: groups of records, chained and checksummed, with one sync for all waiting writers."""
