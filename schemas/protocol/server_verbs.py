"""ServerVerbs: the actions of a server process, whether it has its store or waits for it; see ``verbs``."""

from __future__ import annotations

from typing import Protocol

from ..store.whereabouts import ReleaseStore, TakeStore, Whereabouts
from .need import ADMINS, ANYONE
from .verb import ANSWER, Verb, verb
from .verbs import VERBS


class ServerVerbs(Protocol):
    """The verbs of a process. Every method may raise ``StoreError``."""

    @verb(
        'Which process has the store: no body. Answers {"name","state":"holder"|"standby","holder":{"locations",'
        '"epoch","process"},"end","age_seconds","trouble","lag_seconds","safe"}.',
        None,
        Whereabouts,
        name="where",
        is_read=True,
        needs=ANYONE,
    )
    def whereabouts(self) -> Whereabouts:
        """Return whether this process has the store, and else who has, as far as it knows."""
        return ANSWER

    @verb(
        'Leave the store to another process: {"name"}. Answers {} at once; `where` tells when it is done.',
        ReleaseStore,
        needs=ADMINS,
    )
    def server_release(self, name: str | None = None) -> None:
        """Begin to leave the store to another process. This one stands by then, and lets others be first."""
        return ANSWER

    @verb(
        'Take the store as soon as nobody has it, or with force from its holder: {"name","force"}. Answers {} at once.',
        TakeStore,
        needs=ADMINS,
    )
    def server_take(self, name: str | None = None, force: bool = False) -> None:
        """Begin to take the store, without waiting for others to be first."""
        return ANSWER


SERVER_VERBS: dict[str, Verb] = {
    method.verb.name: method.verb for method in vars(ServerVerbs).values() if hasattr(method, "verb")
}
"""By action name."""
ACTIONS = VERBS | SERVER_VERBS
"""All actions, by name, in the order of ListActions."""
