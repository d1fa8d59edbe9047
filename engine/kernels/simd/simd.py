"""The primitives that kernels need and numba lacks: raw memory and a few machine instructions.

Kernels take addresses (int64) where they can: an array argument costs 20 to 45 ns a call and
compiles once more when it is read-only. All loads and stores here are unaligned and little-endian.
Nothing is checked.

Under ``NUMBA_DISABLE_JIT=1`` the same names are plain Python, so that kernels run under a debugger
and are seen by a coverage tool. So they are in a process that has a library: its kernels need them no more.

====================================  =========================================================
``load_u8/u16/u32/u64(address)``      the unsigned integer at ``address``
``store_u8/u16/u32/u64(address, v)``  write one
``copy8/16/32/64(target, source)``    move that many bytes, all read before any is written
``copy_bytes(target, source, n)``     memcpy: exactly ``n`` bytes, no overlap
``fill64(address, v)``                write the 8 bytes of ``v`` (uint64) eight times
``changes_u8/u16/u32/u64(address)``   of the cells in 64 bytes: bit i = cell i differs from i + 1
``address_of(array)``                 the address of its first byte
``view_u8 ... view_f64(address, n)``  an array over memory that the caller keeps alive
``prefetch(address)``                 a hint; any address is safe
``take_lock(address)``                the uint64 there from 0 to 1 in one step; whether it was 0
``release_lock(address)``             0 again; what was written before is seen by who takes it
``byte_swap64(v)``                    the bytes of a uint64 in opposite order
``multiply_fold(a, b)``               high half xor low half of the 128-bit product of two uint64
``trailing_zeros64/leading_zeros64``  zero bits below / above the outermost set bit; 64 for 0
``population_count64(v)``             set bits
====================================  =========================================================
"""

from typing import Any

from ..ahead.form import FORM, Form

if FORM is Form.JIT:
    from . import simd_llvm as form
else:
    from . import simd_python as form

# An intrinsic takes one argument less than its definition shows, so its type is left open.
_form: Any = form

address_of = _form.address_of
byte_swap64 = _form.byte_swap64
changes_u8 = _form.changes_u8
changes_u16 = _form.changes_u16
changes_u32 = _form.changes_u32
changes_u64 = _form.changes_u64
copy8 = _form.copy8
copy16 = _form.copy16
copy32 = _form.copy32
copy64 = _form.copy64
copy_bytes = _form.copy_bytes
fill64 = _form.fill64
leading_zeros64 = _form.leading_zeros64
load_u8 = _form.load_u8
load_u16 = _form.load_u16
load_u32 = _form.load_u32
load_u64 = _form.load_u64
multiply_fold = _form.multiply_fold
population_count64 = _form.population_count64
prefetch = _form.prefetch
release_lock = _form.release_lock
store_u8 = _form.store_u8
store_u16 = _form.store_u16
store_u32 = _form.store_u32
store_u64 = _form.store_u64
take_lock = _form.take_lock
trailing_zeros64 = _form.trailing_zeros64
view_f32 = _form.view_f32
view_f64 = _form.view_f64
view_i8 = _form.view_i8
view_i16 = _form.view_i16
view_i32 = _form.view_i32
view_i64 = _form.view_i64
view_u8 = _form.view_u8
view_u16 = _form.view_u16
view_u32 = _form.view_u32
view_u64 = _form.view_u64
