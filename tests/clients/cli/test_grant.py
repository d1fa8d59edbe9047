"""``nyala grant``: to users and roles, on tables, columns and all tables."""

from __future__ import annotations

import json

from tests.clients.cli.command import Run

SCHEMA = "id int64, city string, primary key (id)"


def test_grants_to_users_and_roles(run: Run, target: list[str]) -> None:
    assert run("create", "homes", "--schema", SCHEMA, *target).code == 0
    added = run("grant", "add", "alice", "homes", "read", "update", "--column", "city", *target)
    assert added.out.splitlines()[1:] == ["alice\t\thomes\tread\tcity", "alice\t\thomes\tupdate\tcity"]
    assert run("grant", "add", "--role", "team", "*", "maintain", *target).code == 0
    left = run("grant", "revoke", "alice", "homes", "update", "--column", "city", "--json", *target)
    (one,) = json.loads(left.out)
    assert (one["user"], one["table"], one["privilege"], one["columns"]) == ("alice", "homes", "read", ["city"])
    listed = run("grant", "list", *target).out.splitlines()
    assert listed == [
        "user\trole\ttable\tprivilege\tcolumns",
        "alice\t\thomes\tread\tcity",
        "\tteam\t*\tmaintain\tall",
    ]


def test_what_is_no_grant(run: Run, target: list[str]) -> None:
    assert run("create", "homes", "--schema", SCHEMA, *target).code == 0
    for words, code, said in (
        (["alice", "homes", "fly"], 3, "privileges"),
        (["alice", "missing", "read"], 4, "there is no table 'missing'"),
        (["alice", "homes", "read", "--column", "x"], 3, "has no column 'x'"),
        (["alice", "*", "read", "--column", "id"], 3, "give its name"),
    ):
        told = run("grant", "add", *words, *target)
        assert told.code == code and said in told.err and len(told.err.splitlines()) == 1
