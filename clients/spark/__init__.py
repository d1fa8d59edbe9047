"""Tables in Spark: ``format("nyala")``, a data source in Python over Arrow Flight. See docs/spark.md."""
