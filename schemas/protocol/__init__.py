"""The service of a store: its verbs, their wire text, and the sessions that carry them.

Inside: `StoreService` and the interfaces beside it, each verb with its request, built from checked fields, and its
answer, the request that a thread serves, one key as `look_up` takes it, sorting of answers. Not inside: the messages
that the verbs carry (`store`, `rows`, `table`). Servers, clients and the engine use it; no other room of schemas does.
"""
