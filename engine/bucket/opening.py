"""The bucket that a URL names."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from ...schemas.errors import InvalidArgumentError
from ...schemas.uri import shown_uri
from .. import threads
from ..fs.local import LocalFileSystem
from .bucket import Bucket, check_name
from .directory import DirectoryBucket
from .memory import MemoryBucket, MemoryObjects
from .obstore import ObstoreBucket
from .patient import Patience

_OPTIONS = {"s3": ("endpoint", "region"), "gs": (), "az": ()}
"""What may follow the question mark, by scheme: nothing secret."""
_in_memory: dict[str, MemoryObjects] = {}
_mutex = threads.Lock()


def bucket_of(url: str, patience: Patience | None = None) -> Bucket:
    """Return the bucket at a URL; it is not asked for anything yet.

    ``s3://bucket/root?region=...&endpoint=...``, ``gs://bucket/root``, ``az://container/root``: a place in an object
    store, with the credentials that obstore finds in the environment. ``file:///absolute/path``: a directory.
    ``memory://name``: gone with the process, and the same for all who ask for that name.

    Raises InvalidArgumentError for other URLs, or if the package obstore is needed and missing.
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    shown = shown_uri(url)
    if parts.username is not None or (":" in parts.netloc and parts.scheme in _OPTIONS):
        raise InvalidArgumentError(f"{shown}: a URL must not contain credentials; set them in the environment")
    root = parts.path.strip("/")
    if parts.scheme == "file" and not parts.netloc and not parts.query and root:
        return DirectoryBucket(LocalFileSystem(parts.path), patience)
    if parts.scheme == "memory" and not root and not parts.query:
        with _mutex:
            objects = _in_memory.setdefault(parts.netloc, MemoryObjects())
        return MemoryBucket(objects, patience)
    if parts.scheme not in _OPTIONS or not parts.netloc:
        raise InvalidArgumentError(
            f"{shown} is not a bucket: give s3://bucket/root, gs://bucket/root, az://container/root or file:///path"
        )
    if root:
        check_name(root)
    place = f"{parts.scheme}://{host}{parts.path}".rstrip("/")
    return ObstoreBucket(place, _config_of(shown, parts.scheme, parts.query), patience)


def bucket_of_both(one: str, other: str) -> tuple[Bucket, str, str] | None:
    """Return a bucket that has what two URLs name, with what stands there before the names of each; None if no request
    reaches both."""
    if one == other:
        return bucket_of(one), "", ""
    parts = urlsplit(one), urlsplit(other)
    if parts[0].scheme not in _OPTIONS or len({(each.scheme, each.netloc, each.query) for each in parts}) > 1:
        return None
    first, second = (f"{root}/" if (root := each.path.strip("/")) else "" for each in parts)
    return bucket_of(parts[0]._replace(path="").geturl()), first, second


def _config_of(shown: str, scheme: str, query: str) -> dict[str, str]:
    config = dict(parse_qsl(query, keep_blank_values=True))
    known = _OPTIONS[scheme]
    unknown = sorted(config.keys() - set(known))
    if unknown:
        which = f"known: {', '.join(known)}" if known else "none are known"
        raise InvalidArgumentError(f"{shown}: unknown option {unknown[0]!r}; {which}; set secrets in the environment")
    if "@" in config.get("endpoint", ""):
        raise InvalidArgumentError(f"{shown}: its endpoint must not contain credentials; set them in the environment")
    return config
