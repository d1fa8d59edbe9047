"""The places where jobs run: threads of this process, or Spark executors; and the session that configures Spark.

Not inside: the jobs (`jobs`), and the data source of Spark (`spark`). Jobs, `offline_jobs`, Spark and the command line
use it.
"""
