"""A log of slots: numbered objects, each made by put-if-absent, in a bucket or anything else that has that verb."""

from .bucket_slots import BucketSlots
from .check import SlotReport, check_slots
from .options import SlotOptions
from .slot_log import SlotLog
from .slot_store import SlotStore

__all__ = ["BucketSlots", "SlotLog", "SlotOptions", "SlotReport", "SlotStore", "check_slots"]
