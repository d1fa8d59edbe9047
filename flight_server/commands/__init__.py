"""Commands of the command line that need the engine: serving, verification, repair, keys, settings.

Not inside: commands that ask a server (`clients/cli`), and the life of a server (`serve`). Only `nyala` itself uses it.
"""
