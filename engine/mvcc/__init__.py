"""Timestamps: the hybrid clock, and which commits a snapshot sees.

Not inside: commits (`commit`) and deltas (`delta`). Every room of the engine may use it; it uses none.
"""
