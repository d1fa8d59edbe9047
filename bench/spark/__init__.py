"""Tables from Spark beside Parquet files of the same rows, by one session, taking turns."""
