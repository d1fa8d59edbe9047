"""The order of commits, answers to repeated writes, and the room that unfinished work may take.

Not inside: files of the log (`wal`), and the application of a change (`tablet`). Every room above that commits or frees
the log uses it.
"""
