"""Aggregates: from the cells of a run of rows to a partial answer, and from partial answers to the whole.

groups.py   vectors -> the number of each row's group, and the groups' cells
states.py   what is kept of a column to work out its measures: counts, exact sums, bounds
partial.py  rows -> one partial answer: an Arrow table of groups and states
merge.py    partial answers -> the answer
"""
