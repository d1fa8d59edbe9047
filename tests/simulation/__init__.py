"""Simulation: threads take turns by a seed, in virtual time, so that a race that went wrong goes wrong again."""
