"""ServerVerbs: the actions of a server process, whether it has its store or waits for it; see ``verbs``."""

from __future__ import annotations

from typing import Protocol

from ..store.whereabouts import ReleaseStore, TakeStore, Whereabouts
from .need import ADMINS, ANYONE
from .verb import ANSWER, Verb, verb
from .verbs import VERBS


class ServerVerbs(Protocol):
    """The verbs of a process. Every method may raise ``StoreError``."""

    @verb(None, Whereabouts, name="where", is_read=True, needs=ANYONE)
    def whereabouts(self) -> Whereabouts:
        """Return whether this process has the store, and else which process has it, as far as it knows."""
        return ANSWER

    @verb(ReleaseStore, needs=ADMINS)
    def server_release(self, name: str | None = None) -> None:
        """Begin to leave the store to another process, and return at once; ``where`` tells when it has left. This one
        stands by then, and lets others be first."""
        return ANSWER

    @verb(TakeStore, needs=ADMINS)
    def server_take(self, name: str | None = None, force: bool = False) -> None:
        """Begin to take the store, without waiting for others to be first, and return at once. Without ``force`` the
        process waits until no other has the store."""
        return ANSWER


SERVER_VERBS: dict[str, Verb] = {
    method.verb.name: method.verb for method in vars(ServerVerbs).values() if hasattr(method, "verb")
}
"""By action name."""
ACTIONS = VERBS | SERVER_VERBS
"""All actions, by name, in the order of ListActions."""
