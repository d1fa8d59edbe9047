"""Encryption at rest: a file system whose files are encrypted on the disk below it (docs/format/encryption.md)."""
