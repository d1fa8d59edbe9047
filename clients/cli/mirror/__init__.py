"""``nyala mirror``: the command that runs a source, its signals and the lines about its progress.

The sources are in `clients/sources`.
"""
