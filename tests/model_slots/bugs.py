"""The mistakes that the model must find when they are planted: others made them, or nearly we."""

from enum import Enum


class Bug(Enum):
    DELETES_CLAIMS = "claims are deleted with other slots"
    NO_LOOK_ABOVE = "a claim that landed is not looked above"
    STALE_LIST = "a listing may show an older end of the log"
    ACKS_UNKNOWN = "a write is acknowledged though the outcome is unknown"
    SKIPS_SLOT = "a slot whose outcome is unknown is given up for the next one"
    REFUSAL_IS_MINE = "a refusal is taken for one's own success, without reading the slot back"
    REFUSAL_IS_OTHERS = "the library sent again, and its refusal is believed without reading the slot back"
    FENCED_ACKS = "a fenced process acknowledges what was waiting"
    FENCED_DELETES = "a fenced process deletes what its last slot would have freed"
    DELETES_TOO_SOON = "slots and files are deleted before the slot that frees them has landed"
    NO_LEASE = "reads of now need no lease"
    CLAIMS_AT_ONCE = "a standby claims without waiting for silence"
    FORCE_ANSWERS_AT_ONCE = "who takes the log from a living holder answers before that one's reads have ended"
    RELEASES_IN_HOLD = "who took the log from a living holder releases it before that one's reads have ended"
    LEASE_FROM_ANSWER = "a lease counts from the answer, not from sending"
    CLAIM_WITHOUT_NONCE = "two claims of one process have the same bytes"
    READS_AFTER_RELEASE = "reads go on after a release was sent"
    TIMESTAMPS_AFTER_RELEASE = "a holder hands out snapshots after a release was sent"
    NAMES_WITHOUT_REIGN = "names of files do not carry the reign"
    SWEEPS_OWN_REIGN = "a sweep takes files of its own reign"
    CEILING_IGNORED = "a new holder's clock does not start above the ceiling"
    CEILING_EXCEEDED = "a holder hands out snapshots above its ceiling"
