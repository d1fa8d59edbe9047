"""Upserts beside other stores: many rows in one call, and small ones by eight processes; time, memory, losses.

Each subject runs in processes of its own. What the stores hold afterwards is compared row by row with what they must.
"""
