"""The HTTP port: health, metrics and the pages of the console.

Not inside: the port's place in a server's life (`serve`). The console and `serve` use it.
"""
