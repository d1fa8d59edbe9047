"""A process and its surroundings: addresses, signals, logs, the service manager, opening and closing.

Not inside: the order of these steps (`serve`). Commands, `serve` and the console use it.
"""
