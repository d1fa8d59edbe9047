"""Whole directories, of files that nobody needs any more."""

from contextlib import suppress

from .filesystem import FileSystem, join


def remove_tree(fs: FileSystem, directory: str) -> None:
    """Remove a directory with all that is in it, if it is there. Raises OSError where something cannot be removed."""
    if not fs.exists(directory):
        return
    for name in fs.list(directory):
        path = join(directory, name)
        try:
            fs.unlink(path)
        except (IsADirectoryError, PermissionError):  # what POSIX lets unlink say of a directory
            remove_tree(fs, path)
    fs.remove_directory(directory)


def remove_quietly(fs: FileSystem, directory: str) -> None:
    """Remove a directory; what cannot be removed stays, to be swept at the next start."""
    with suppress(OSError):
        remove_tree(fs, directory)
