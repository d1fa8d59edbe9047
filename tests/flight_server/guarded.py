"""A server with grants, its administrator and a user."""

from __future__ import annotations

from pathlib import Path

import nyala
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.security.security import Security
from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.store.grants import GrantChange, Privilege
from tests.doubles.grant_statements import ALL, PLAIN, SCHEMA, Caller
from tests.flight_server.served import Served


class Guarded:
    """A server with an administrator and a user, over a store in memory."""

    def __init__(self, folder: Path, store: Store | None = None) -> None:
        self.tokens = folder / "tokens.json"
        self.audit = folder / "audit.log"
        self.admin_token = create_token(self.tokens, "root", ("admin",))[0]
        self.user_token = create_token(self.tokens, "alice", ("team",))[0]
        self.store = store or Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
        self.start()

    def start(self) -> None:
        options = ServeOptions(tokens=self.tokens, audit_log=self.audit)
        self.served = Served(self.store, None, Security(options))
        self.admin = Caller(self.served.url, self.admin_token, "admins")
        self.user = Caller(self.served.url, self.user_token)

    def make_table(self, name: str = "t") -> None:
        with nyala.connect(self.served.url, token=self.admin_token) as db:
            table = db.create_table(name, SCHEMA, primary_key=["k"])
            table.insert([{"k": number, "a": number, "b": "x"} for number in range(10)])
            table.maintain("flush")

    def set_grants(
        self, has: dict[str, frozenset[str]], table: str = "t", role: str | None = None, user: str = "alice"
    ) -> None:
        """Give a user, or a role, these grants and no others."""
        whose = GrantChange(user=user if role is None else None, role=role, table=table, privileges=list(Privilege))
        self.store.revoke(whose)
        for name, columns in has.items():
            some = None if name in PLAIN or columns == frozenset(ALL) else sorted(columns)
            self.store.grant(whose.model_copy(update={"privileges": [Privilege(name)], "columns": some}))

    def close(self) -> None:
        self.served.client.close()
        self.served.server.shutdown()
        self.store.close()
