"""What the documentation site has beside MkDocs: pages from other folders, links out of them, and ``llms.txt``.

It needs no MkDocs: ``.ci/docs_hooks.py`` is the part that MkDocs calls.
"""
