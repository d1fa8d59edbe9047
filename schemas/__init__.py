"""Words and bytes that every part of Nyala shares: definitions, requests, answers and errors.

The rooms, from the top: `protocol`, `store`, `rows`, `table`, `cells`, `limits`; each may use the rooms after it.
Loose files serve all rooms. Nothing here computes over rows, opens a file or speaks to a network.
"""
