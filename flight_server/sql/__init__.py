"""Flight SQL on the server's port, and the child processes in which its statements run.

`front` answers calls: it reads `messages`, and answers metadata from `metadata`, `sql_info` and `type_info`. Statements
go over a `channel` to a child (`child_main`), one of the `places`. A child reads tables through `private_port`, with
the rights of whoever sent the statement. Not inside: parsing and planning of SQL (`clients/sql`). Only `serve` uses
this.
"""
