"""The 22 queries of TPC-H, and the rows that they are asked of."""
