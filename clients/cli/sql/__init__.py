"""``nyala sql``: statements of a command line, a script or a person at a terminal, and their rows on a screen or in a
file.

Not inside: what runs a statement (`clients/sql`), and the writers of rows that other commands use too
(`clients/cli/output`). `nyala` uses it. prompt-toolkit is imported only for a terminal.
"""
