"""Object stores such as S3: immutable objects by name, and one verb that only one caller can win."""

from .bucket import Bucket, check_name, check_prefix
from .directory import DirectoryBucket
from .memory import MemoryBucket, MemoryObjects
from .patient import Patience, PatientBucket

__all__ = [
    "Bucket",
    "DirectoryBucket",
    "MemoryBucket",
    "MemoryObjects",
    "Patience",
    "PatientBucket",
    "check_name",
    "check_prefix",
]
