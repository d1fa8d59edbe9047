"""Sources: what changes elsewhere, applied to tables of a store exactly once.

Here lie the interface of a source, the table of positions, and the runner that copies a source and then follows it.
`postgres` is the source for PostgreSQL. Files that are applied once are in `clients/jobs`. `nyala.sources` and
`nyala mirror` use it.
"""
