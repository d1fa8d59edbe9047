"""The tables of a store by name: created, altered, split, dropped and recalled; and their grants.

Not inside: a table itself (`table`), and the file that lists them (`manifest`). The store's door, recovery, moves,
replicas and `offload` use it.
"""
