"""Answers to each kind of call: puts, gets, actions, exchanges, sessions.

Not inside: what all calls share (`requests`), and who may call (`security`). Only `server` uses it.
"""
