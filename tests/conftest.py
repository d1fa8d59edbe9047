"""What all tests share."""

from hypothesis import settings

# No deadline: the first call of a kernel compiles it, and the machine is shared.
settings.register_profile("nyala", deadline=None, print_blob=True)
settings.load_profile("nyala")
