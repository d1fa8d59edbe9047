"""The settings of a server: flags, environment, file, and the limits that they set.

Not inside: options of the engine (`engine/options`). All rooms of the server may use it.
"""
