"""What all calls share: their admission and end, received batches, records of what ran, metrics, traces.

Not inside: what a call does (`handlers`). Handlers, the server and the HTTP port use it.
"""
