"""The embedded store alone: how its figures depend on batch size, on deltas and on time."""
