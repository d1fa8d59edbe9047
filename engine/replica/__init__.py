"""A store that follows the log of another process, and only reads.

Not inside: taking a store over, which a standby does (`home`). The server uses it.
"""
