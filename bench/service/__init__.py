"""One server under steady work: gets beside writes and maintenance, followers of changes, the share of the disk."""
