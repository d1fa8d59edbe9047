"""Compiles a library: all kernels, for one level. Run as a process of its own, by `making`:

    python -m nyala.engine.kernels.ahead.build LEVEL FILE

numba compiles each kernel as it would on first use. LLVM then joins the modules, and everything but the kernels'
entries becomes internal, so that what several kernels use is there once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from llvmlite import binding as llvm

from ..kernel import KERNELS
from ..private import source_digest
from ..warmup import import_all, signature_of
from .image import Entry, Header, write_library
from .levels import LEVELS, Level
from .library import c_functions, kernel_name
from .linking import link
from .runtime import RUNTIME

_LLVM_TYPES = {"int64": "i64", "uint64": "i64", "int32": "i32", "float64": "double", "bool": "i8", "none": "ptr"}
_ENTRY = "nyala_kernel_"


def main() -> None:
    """Compile a library and write it to a file. Writes a line of JSON before each kernel: done, in all, its name."""
    name, path = sys.argv[1:]
    level = next(level for level in LEVELS if level.name == name)
    digest = source_digest()
    import_all()
    asked = [(kernel, signature) for kernel in KERNELS if (signature := signature_of(kernel))]
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
    image = link(_object(modules, level), c_functions())
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


def _object(modules: list[Any], level: Level) -> bytes:
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
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    features = ",".join(f"+{name}" for name in level.features)
    machine = target.create_target_machine(
        cpu=level.processor, features=features, opt=3, reloc="pic", codemodel="small"
    )
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    builder = llvm.create_pass_builder(machine, options)
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(whole, builder)
    return machine.emit_object(whole)


if __name__ == "__main__":
    main()
