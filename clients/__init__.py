"""Everything that speaks to a store from outside it: the API, the command line, jobs, Spark.

The rooms, from the top: `cli`, `jobs`, then `demo` and `spark`, `api`, then `cluster` and `offline_jobs`, then
`executors` and `flight`, `convert`. Not inside: the engine, which only `offline_jobs` imports.
"""
