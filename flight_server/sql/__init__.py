"""Flight SQL on the server's port, and the child processes in which its statements run.

`front` answers calls: it reads `messages`, and answers metadata from `metadata`, `sql_info` and `type_info`.
`statements` go over a `channel` to a child (`child_main`), one of the `places`; `sessions` know a client's transaction
by its cookie. A child reads tables through `private_port`, with the rights of its statement's sender. Not inside:
parsing and planning of SQL (`clients/sql`). Only `serve` uses this.
"""
