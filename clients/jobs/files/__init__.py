"""Jobs that read files: loads, change application, and the formats of their input.

Not inside: files that a job writes (`backup`). Only `nyala.jobs` and the command line use this room.
"""
