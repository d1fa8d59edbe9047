"""The demonstration: a year of New York's flights through a server, corrected, travelled back in, and crash-proof."""
