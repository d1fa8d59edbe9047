"""Several processes of one store: their layout on disk, shares, supervisor and front door.

Not inside: what each process serves (`serve`). Commands, `serve` and `nyala.open` use it.
"""
