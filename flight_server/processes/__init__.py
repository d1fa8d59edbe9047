"""Several processes of one store: their layout on disk, shares, supervisor and front door.

Not inside: what each process serves (`serve`). Commands and `serve` use it.
"""
