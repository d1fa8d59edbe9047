"""Nyala beside another store: the same data, the same questions, in one run, taking turns."""
