"""Reading tablets: chunks of pages with their deltas, filtered, in order or not, on several threads.

Not inside: which snapshot and which tablets, which `scan/plan` decides, and the rows of one rowset (`rowset`).
`scan/plan` uses this room, and so do readers of a store's files outside its server.
"""
