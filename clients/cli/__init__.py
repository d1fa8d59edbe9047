"""Commands that ask a server or an embedded store, one file each, with their options and their output.

Not inside: commands that need the server's code (`flight_server/commands`). Only `nyala` itself uses it.
"""
