"""Work on a store's files outside its server: direct scans, bulk imports, merges, copies.

The only room of the clients that imports the engine. Not inside: leases and checks on the server's side
(`engine/offload`). The API and jobs use it.
"""
