"""The store: tables, tablets, rowsets, the log, and all that keeps them.

`store` is its door; `options` has every knob. The floors of its rooms are in pyproject.toml, and docs/architecture.md
draws them. Not inside: transport (`flight_server`) and users (`clients`). The server and `nyala.open` use it.
"""
