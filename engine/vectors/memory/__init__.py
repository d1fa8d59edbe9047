"""The memory that vectors lie in: reserved, lent, kept for the next use, on huge pages where there are any.

Not inside: what the bytes mean. `vectors` and everything above may use this room.
"""
