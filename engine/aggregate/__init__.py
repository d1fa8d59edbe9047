"""Aggregates: from the cells of some rows to a partial answer, and from partial answers to the whole.

groups.py   vectors -> the number of each row's group, and the groups' cells
states.py   the state of a column, from which measures are computed: counts, exact sums, bounds
partial.py  rows -> one partial answer: an Arrow table of groups and states
merge.py    partial answers -> the answer
"""
