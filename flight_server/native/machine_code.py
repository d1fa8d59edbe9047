"""Compiles the few instructions that the hooks in Arrow's and gRPC's libraries consist of, anew in each process."""

from __future__ import annotations

from typing import Any

from llvmlite import binding as llvm

_kept: list[Any] = []
"""What the code lies in; kept as long as the process lives, since C++ may call it at any time."""


def compiled(code: str) -> Any:
    """Return an engine with the native functions of LLVM code, for ``get_function_address``. It is never freed."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(code)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    _kept.append(engine)
    return engine
