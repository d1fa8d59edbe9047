# pyarrow.compute makes its functions when it is imported, out of sight of type checkers.
from typing import Any

def __getattr__(name: str) -> Any: ...
