"""SQL beside the engine that runs it: the 22 queries of TPC-H over tables, by Flight SQL, and over Parquet files."""
