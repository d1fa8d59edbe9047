"""Compiles a library: all kernels, for one level. Run as a process of its own, by `making`:

    python -m nyala.engine.kernels.compile.build LEVEL FILE [MODULE ...]

With modules it has the kernels of these alone, which is enough for a test.

numba compiles each kernel as it would on first use on such a machine, as far as LLVM's language (`target`). LLVM then
joins the modules, everything but the kernels' entries becomes internal, so that what several kernels use is there once,
and one object file comes of it. So any machine makes libraries for all.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from llvmlite import binding as llvm

from ..ahead.image import Entry, Header, write_library
from ..ahead.levels import LEVELS
from ..ahead.library import c_functions, kernel_name
from ..ahead.private import source_digest
from .inventory import import_all, kernels_for_python
from .linking import link
from .runtime import RUNTIME
from .target import compile_only_for, machine_of

_LLVM_TYPES = {"int64": "i64", "uint64": "i64", "int32": "i32", "float64": "double", "bool": "i8", "none": "ptr"}
_ENTRY = "nyala_kernel_"


def main() -> None:
    """Compile a library of kernels and write it to a file. Writes a line of JSON before each kernel: done, in all, its
    name."""
    name, path, *wanted = sys.argv[1:]
    level = next(level for level in LEVELS if level.name == name)
    digest = source_digest()
    compile_only_for(level)
    import_all()
    asked = [(kernel, signature) for kernel, signature in kernels_for_python() if _is_of(kernel, wanted)]
    modules: list[Any] = []
    entries: dict[str, tuple[str, list[str]]] = {}
    for done, (kernel, signature) in enumerate(asked):
        _say(done, len(asked), kernel.__name__)
        kernel.compile(signature)
        compiled = kernel.overloads[signature]
        types = str(compiled.signature.return_type), [str(kind) for kind in signature]
        modules.append(llvm.parse_bitcode(compiled.library._final_module.as_bitcode()))
        modules.append(_wrapper(modules[-1], f"{_ENTRY}{len(entries)}", compiled.fndesc.mangled_name, *types))
        entries[kernel_name(kernel.py_func)] = types
    _say(len(asked), len(asked), "")
    image = link(_object(modules, machine_of(level)), c_functions())
    header = Header(
        sources=digest,
        level=level.name,
        entries={
            name: Entry(image.symbols[f"{_ENTRY}{number}"], *types)
            for number, (name, types) in enumerate(entries.items())
        },
        imports=image.imports,
        own=image.own,
    )
    write_library(Path(path), header, bytes(image.content))


def _is_of(kernel: Any, modules: list[str]) -> bool:
    """Return whether a kernel is in one of the modules, or these are none."""
    return not modules or kernel_name(kernel.py_func).partition(".")[0] in modules


def _say(done: int, total: int, name: str) -> None:
    sys.stdout.write(json.dumps([done, total, name]) + "\n")
    sys.stdout.flush()


def _wrapper(module: Any, name: str, inner: str, result: str, arguments: list[str]) -> Any:
    """Return a module with a C function ``name`` that calls numba's ``inner``.

    That one takes places for its result and for an exception, and returns a status. Kernels raise nothing; only where
    memory for an array of their own cannot be had, the process ends.
    """
    numbered = ", ".join(f"{_LLVM_TYPES[kind]} %{number}" for number, kind in enumerate(arguments))
    others = "".join(f", {_LLVM_TYPES[kind]}" for kind in arguments)
    kind, returned = _LLVM_TYPES[result], "void" if result == "none" else _LLVM_TYPES[result]
    rest = f", {numbered}" if numbered else ""
    answer = "ret void" if result == "none" else f"%value = load {kind}, ptr %result\n  ret {kind} %value"
    text = f"""target datalayout = "{module.data_layout}"
target triple = "{module.triple}"
declare i32 @"{inner}"(ptr, ptr{others})
define {returned} @{name}({numbered}) {{
entry:
  %result = alloca {kind}
  %exception = alloca ptr
  %status = call i32 @"{inner}"(ptr %result, ptr %exception{rest})
  %good = icmp eq i32 %status, 0
  br i1 %good, label %done, label %failed
failed:
  call void @llvm.trap()
  unreachable
done:
  {answer}
}}
declare void @llvm.trap()
"""
    return llvm.parse_assembly(text)


def _object(modules: list[Any], machine: Any) -> bytes:
    """Return one object file of all modules, with nothing that the kernels do not use."""
    whole, *others = modules
    for module in [*others, llvm.parse_assembly(RUNTIME)]:
        whole.link_in(module)
    for function in whole.functions:
        if not function.is_declaration and not function.name.startswith(_ENTRY):
            function.linkage = "internal"
    for variable in whole.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    builder = llvm.create_pass_builder(machine, options)
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(whole, builder)
    return machine.emit_object(whole)


if __name__ == "__main__":
    main()
