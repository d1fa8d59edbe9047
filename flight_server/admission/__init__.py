"""The number of calls that may run and wait at once, for each caller and for all.

Not inside: budgets of memory (`schemas/limits`), and rights (`security`). `requests`, handlers and the console use it.
"""
