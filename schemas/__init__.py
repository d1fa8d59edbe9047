"""Words and bytes that client and server share: no I/O, no compiled code."""
