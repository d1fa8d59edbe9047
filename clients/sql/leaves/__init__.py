"""Leaves first: how the tables of a query come into memory, before DataFusion runs it.

Inside: what a plan needs of each table (`planning`), keys by which tables restrict each other (`restrictions`,
`reductions`), and the reads (`reader`). Not inside: the query itself. `clients/sql/engine.py` uses it.
"""
