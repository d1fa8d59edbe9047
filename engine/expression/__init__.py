"""Expressions, which are also the filters: from SQL text to values for the rows of a batch.

words.py, tokenizer.py           SQL text -> words
parse.py, operand.py, brackets.py  words -> a tree, by operator precedence
building.py, signatures.py       the nodes, within limits; the functions and their arguments
tree.py                          the tree
names.py                         the columns of a tree
folding.py                       what is the same for all rows -> literals
evaluate.py, functions.py        tree + rows -> values
numbers.py, moments.py           arithmetic; parts and text of dates and timestamps
comparing.py, narrowing.py       comparisons; what one with a literal means for the cells of a type
literal.py, constants.py         the place of a literal among cells; literals as values
pattern.py                       LIKE patterns
assign.py                        a value -> the cells of a column
rows.py, sizes.py                the rows; what values may take of the memory
written.py                       tree -> SQL text
"""
