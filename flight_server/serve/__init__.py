"""The life of a server process, from its options to its exit: one store, several, or several processes.

Not inside: answers to requests (`handlers`), and the supervision of child processes (`processes`). `commands` uses it.
"""
