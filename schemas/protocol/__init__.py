"""The service of a store: its verbs, their wire text, and the sessions that carry them.

Inside: `StoreService`, each verb with its request and answer, sorting of answers. Not inside: the messages that the
verbs carry (`store`, `rows`, `table`). Servers, clients and the engine use it; no other room of schemas does.
"""
