"""Checks of all servers of a store against each other, and plans that balance their tablets.

Not inside: requests for rows, which lie in `cluster`. Jobs and the command line use this room.
"""
