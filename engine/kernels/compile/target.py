"""Makes numba compile for another processor, and only as far as LLVM's language: nothing is to run in this process.

numba would also make every kernel callable here. That takes machine code, wrappers for calls from Python, and a
processor that can run it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding as llvm
from numba.core import codegen

from ..ahead.kernel import FLAGS
from ..ahead.levels import Level


class _Library(codegen.JITCodeLibrary):
    """What numba made of one function."""

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0  # nobody calls it

    def _finalize_specific(self) -> None:
        pass


class _Codegen(codegen.JITCPUCodegen):
    _library_class = _Library

    def _add_module(self, module: Any) -> None:
        pass

    def set_env(self, env_name: str, env: Any) -> None:
        pass


def compile_only_for(level: Level) -> None:
    """Let numba compile for a level in this process. To be called before it compiles anything."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.get_process_triple = lambda: level.triple
    codegen.JITCPUCodegen = _Codegen
    FLAGS.update(cache=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def machine_of(level: Level) -> Any:
    """Return what compiles the machine code of kernels for a level."""
    return llvm.Target.from_triple(level.triple).create_target_machine(
        cpu=level.processor,
        features=",".join(f"+{name}" for name in level.features),
        opt=3,
        reloc="pic",
        codemodel="small",
    )
