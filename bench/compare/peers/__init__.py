"""The stores that stand beside each other, each with its defaults, and the machine itself."""
