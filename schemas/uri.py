"""URIs in messages: never with their secrets."""

import re


def shown_uri(uri: str) -> str:
    """Return a URI without its user, password, query and fragment, which may be secret, valid or not."""
    return re.split("[?#]", re.sub("://.*@", "://", uri, flags=re.DOTALL), maxsplit=1)[0]


def line_without(error: Exception, uri: str) -> str:
    """Return the first line of an error about a URI, without the secrets in it."""
    return str(error).replace(uri, shown_uri(uri)).partition("\n")[0]
