"""Removes whole directories of files that are not needed any more."""

from contextlib import suppress

from .filesystem import FileSystem, join


def remove_tree(fs: FileSystem, directory: str) -> None:
    """Remove a directory with its content, if it exists. Raises OSError if something cannot be removed."""
    if not fs.exists(directory):
        return
    for name in fs.list(directory):
        path = join(directory, name)
        try:
            fs.unlink(path)
        except (IsADirectoryError, PermissionError):  # POSIX allows both errors for unlinking a directory
            remove_tree(fs, path)
    fs.remove_directory(directory)


def remove_quietly(fs: FileSystem, directory: str) -> None:
    """Remove a directory of files; the next start removes what is left."""
    with suppress(OSError):
        remove_tree(fs, directory)
