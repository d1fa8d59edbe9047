"""Everything that speaks to a store from outside it: the API, the command line, jobs, Spark.

The rooms, from the top: `cli`, `jobs` and `sources`, then `demo` and `spark`, `api`, then `cluster`, `offline_jobs` and
`sql`, then `executors` and `flight`, `convert`. Not inside: the engine, which only `offline_jobs` imports.
"""
