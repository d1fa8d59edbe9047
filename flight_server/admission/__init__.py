"""How many calls may run and wait at once, for each caller and for all.

Not inside: budgets of memory (`schemas/limits`), and rights (`security`). `requests` and `server` use it.
"""
