"""The server of a store over Arrow Flight, and the commands that start and keep it.

The rooms, from the top: `commands`, `serve`, `http/console`, `http` and `sql`, `server` (a file), `handlers`,
`requests`, then `admission`, `processes`, `runtime`, `security`, then `errors`, `native`, `settings`, `stores`. Each
may use the rooms after it. Not inside: the store itself (`engine`), and messages (`schemas`). Only `nyala` imports
this.
"""
