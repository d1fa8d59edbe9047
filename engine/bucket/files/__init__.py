"""The files of a store in a bucket, with a cache on a local disk."""

from .filesystem import BucketFileSystem

__all__ = ["BucketFileSystem"]
