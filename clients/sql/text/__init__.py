"""The text of an SQL statement: how it is read, and the edits after which DataFusion means what PostgreSQL means.

Inside: the dialect and what it parses (`dialect`, `parsed_text`), with the places of all parts in the text (`written`,
`placed`); names (`names`); and one module for each kind of edit. An edit needs the text alone. Not inside: edits that
need the types of columns (`exact_numbers`, `overflow`), and what a statement does (`change`). The package `sql` and its
rooms use it.
"""
