"""Numba's runtime for a kernel that makes an array of its own: memory with a count of references.

numba's code finds the count at byte 0, the address of the data at byte 24 (``numba/core/runtime/nrt.cpp``). It counts
by itself, and calls ``NRT_MemInfo_call_dtor`` at 0.
"""

RUNTIME = """
declare ptr @malloc(i64)
declare void @free(ptr)

define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %alignment) {
entry:
  %wide = zext i32 %alignment to i64
  %least = call i64 @llvm.umax.i64(i64 %wide, i64 16)
  %with_header = add i64 %size, 64
  %total = add i64 %with_header, %least
  %block = call ptr @malloc(i64 %total)
  %none = icmp eq ptr %block, null
  br i1 %none, label %done, label %fill
fill:
  %begin = ptrtoint ptr %block to i64
  %after_header = add i64 %begin, 64
  %last = sub i64 %least, 1
  %raised = add i64 %after_header, %last
  %mask = sub i64 0, %least
  %data = and i64 %raised, %mask
  %dtor_place = getelementptr i64, ptr %block, i64 1
  %info_place = getelementptr i64, ptr %block, i64 2
  %data_place = getelementptr i64, ptr %block, i64 3
  %size_place = getelementptr i64, ptr %block, i64 4
  store i64 1, ptr %block
  store i64 0, ptr %dtor_place
  store i64 0, ptr %info_place
  store i64 %data, ptr %data_place
  store i64 %size, ptr %size_place
  br label %done
done:
  ret ptr %block
}

declare i64 @llvm.umax.i64(i64, i64)

define ptr @NRT_MemInfo_alloc(i64 %size) {
  %block = call ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 16)
  ret ptr %block
}

define void @NRT_MemInfo_call_dtor(ptr %block) {
  call void @free(ptr %block)
  ret void
}

define ptr @NRT_Allocate(i64 %size) {
  %block = call ptr @malloc(i64 %size)
  ret ptr %block
}

define void @NRT_Free(ptr %block) {
  call void @free(ptr %block)
  ret void
}
"""
"""In the language of LLVM."""
