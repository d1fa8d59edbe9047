"""The signs of an encrypted store and its files. They stand alone so that a plain store imports no cipher."""

MAGIC = b"NYALAENC"
"""The first bytes of every encrypted file."""
KEYS_MAGIC = b"NYALAKEY"
"""The first bytes of the file with the keys, and of its copy."""
PATH = "keys"
"""The file with the keys of a store, which is not encrypted."""
COPY_PATH = "keys.copy"
