"""A store of several servers seen as one: where each tablet is, and requests sent to the servers that have it.

`upkeep` checks and balances the servers. Not inside: the connection to one server (`flight`). All rooms of the clients
above use it, and so do servers that ask others.
"""
