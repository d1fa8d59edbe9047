"""Encoded primary keys: made from columns, compared, searched, merged.

Not inside: the index of keys in a rowset (`rowset`), and the partition of a key (`partition`). Everything above
`vectors` may use this room.
"""
