"""OwnStore: the whereabouts of a server whose store cannot move to another process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.server_verbs import ServerVerbs
from ...schemas.protocol.verb import Verb
from ...schemas.store.whereabouts import Holder, Whereabouts


class OwnStore(ServerVerbs):
    """Answers where the store is, for a server whose store cannot move to another process. Thread safe."""

    def __init__(self, locations: Sequence[str] = (), name: str | None = None) -> None:
        """``locations``: where clients reach it, as far as it was told. ``name`` is that of its store in a bucket, or
        its own in the placement."""
        self._name = name
        self._holder = Holder(locations=[*locations], process=uuid4().hex)

    def perform(self, verb: Verb, *_: Any, **__: Any) -> Whereabouts:
        """See ServerVerbs. Only ``where`` is possible."""
        if verb.name != "where":
            raise InvalidArgumentError(
                "no other process can take over the store of this server, which is not a store in a bucket with "
                "standbys"
            )
        return Whereabouts(name=self._name, state="holder", holder=self._holder)
