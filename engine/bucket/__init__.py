"""Object stores such as S3: immutable objects by name, and one verb that only one caller can win."""

from .bucket import Bucket, check_name, check_prefix

__all__ = ["Bucket", "check_name", "check_prefix"]
