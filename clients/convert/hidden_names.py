"""Files in a folder that nobody reads as data: notes, and what a writer has not finished."""


def is_hidden(path: str) -> bool:
    """Return whether a file's path below the folder that is read has a hidden part: one that begins with ``_`` or
    ``.``. A folder of a partition, such as ``_day=1``, is none."""
    *folders, name = path.strip("/").split("/")
    hidden = [each for each in folders if each.startswith(".") or (each.startswith("_") and "=" not in each)]
    return bool(hidden) or name.startswith(("_", "."))
