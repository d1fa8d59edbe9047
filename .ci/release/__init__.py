"""Builds what a release publishes from a clean copy of a commit, and tries each file of it in an empty environment.

It uploads nothing. ``make release`` runs it, and ``dist/`` has the result.
"""
