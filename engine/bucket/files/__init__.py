"""The files of a store in a bucket, with a cache on a local disk."""

from .filesystem import BucketFileSystem
from .room import check_room

__all__ = ["BucketFileSystem", "check_room"]
