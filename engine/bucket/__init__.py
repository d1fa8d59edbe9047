"""Object stores such as S3: immutable objects by name, and one verb that only one caller can win."""

from .bucket import Bucket, check_name, check_prefix
from .directory import DirectoryBucket
from .memory import MemoryBucket, MemoryObjects
from .opening import bucket_of
from .patient import Patience, PatientBucket, hurried
from .probe import probe

__all__ = [
    "Bucket",
    "DirectoryBucket",
    "MemoryBucket",
    "MemoryObjects",
    "Patience",
    "PatientBucket",
    "bucket_of",
    "check_name",
    "check_prefix",
    "hurried",
    "probe",
]
