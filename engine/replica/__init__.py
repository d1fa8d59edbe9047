"""A store that follows the log of another process, in a bucket or a directory, and only reads.

Not inside: taking a store over, which a standby does (`home`). The server and ``nyala.open(read_only=True)`` use it.
"""
