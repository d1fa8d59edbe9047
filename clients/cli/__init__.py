"""Commands that ask a server or an embedded store, one file each, with their options and their output.

Not inside: commands that need the server's code (`flight_server/commands`). `nyala` and the server's commands use it.
"""
