"""The machine code of `call_gate`, as LLVM code whose numbers are filled in there."""

CODE = """
@name = constant [13 x i8] c"authorization"
@path = constant [5 x i8] c":path"
@actions = constant [{actions_size} x i8] c"{actions}"
@puts = constant [{puts_size} x i8] c"{puts}"
@exchanges = constant [{exchanges_size} x i8] c"{exchanges}"
@handshakes = constant [{handshakes_size} x i8] c"{handshakes}"

define i64 @hash(ptr %text, i64 %size, i64 %seed) uwtable {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %hash = phi i64 [ %seed, %entry ], [ %mixed, %body ]
  %more = icmp ult i64 %i, %size
  br i1 %more, label %body, label %end
body:
  %at = getelementptr i8, ptr %text, i64 %i
  %byte = load i8, ptr %at
  %wide = zext i8 %byte to i64
  %xored = xor i64 %hash, %wide
  %multiplied = mul i64 %xored, 1099511628211
  %high = lshr i64 %multiplied, 29
  %mixed = xor i64 %multiplied, %high
  %next = add i64 %i, 1
  br label %head
end:
  %is_zero = icmp eq i64 %hash, 0
  %result = select i1 %is_zero, i64 1, i64 %hash
  ret i64 %result
}}

define i1 @same(ptr %left, i64 %left_size, ptr %right, i64 %right_size) uwtable {{
entry:
  %equal_sizes = icmp eq i64 %left_size, %right_size
  br i1 %equal_sizes, label %head, label %no
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %left_size
  br i1 %more, label %compare, label %yes
compare:
  %left_at = getelementptr i8, ptr %left, i64 %i
  %right_at = getelementptr i8, ptr %right, i64 %i
  %left_byte = load i8, ptr %left_at
  %right_byte = load i8, ptr %right_at
  %is_same = icmp eq i8 %left_byte, %right_byte
  br i1 %is_same, label %body, label %no
body:
  %next = add i64 %i, 1
  br label %head
yes:
  ret i1 true
no:
  ret i1 false
}}

; a grpc_slice: its count of references or 0, and then its size and address, or one byte of size and the bytes
define i64 @size_of(ptr %slice) uwtable {{
  %counter = load i64, ptr %slice
  %is_inline = icmp eq i64 %counter, 0
  %size_at = getelementptr i8, ptr %slice, i64 8
  %short = load i8, ptr %size_at
  %short_size = zext i8 %short to i64
  %long_size = load i64, ptr %size_at
  %size = select i1 %is_inline, i64 %short_size, i64 %long_size
  ret i64 %size
}}

define ptr @bytes_of(ptr %slice) uwtable {{
  %counter = load i64, ptr %slice
  %is_inline = icmp eq i64 %counter, 0
  %inline = getelementptr i8, ptr %slice, i64 9
  %address_at = getelementptr i8, ptr %slice, i64 16
  %address = load ptr, ptr %address_at
  %bytes = select i1 %is_inline, ptr %inline, ptr %address
  ret ptr %bytes
}}

define i1 @is_known(ptr %gate, i64 %hash) uwtable {{
entry:
  %table_word = load atomic i64, ptr %gate acquire, align 8
  %table = inttoptr i64 %table_word to ptr
  %first = and i64 %hash, {mask}
  br label %head
head:
  %slot = phi i64 [ %first, %entry ], [ %next, %other ]
  %left = phi i64 [ {slots}, %entry ], [ %fewer, %other ]
  %at = getelementptr i64, ptr %table, i64 %slot
  %found = load atomic i64, ptr %at monotonic, align 8
  %is_it = icmp eq i64 %found, %hash
  br i1 %is_it, label %yes, label %miss
miss:
  %is_empty = icmp eq i64 %found, 0
  %fewer = sub i64 %left, 1
  %is_last = icmp eq i64 %fewer, 0
  %is_over = or i1 %is_empty, %is_last
  br i1 %is_over, label %no, label %other
other:
  %after = add i64 %slot, 1
  %next = and i64 %after, {mask}
  br label %head
yes:
  ret i1 true
no:
  ret i1 false
}}

; return whether a call of this path, or null, is a stream from its client: gRPC gives it a thread without a message
define i1 @is_stream(ptr %path) uwtable {{
entry:
  %is_there = icmp ne ptr %path, null
  br i1 %is_there, label %compare, label %no
compare:
  %size = call i64 @size_of(ptr %path)
  %bytes = call ptr @bytes_of(ptr %path)
  %is_put = call i1 @same(ptr %bytes, i64 %size, ptr @puts, i64 {puts_size})
  %is_exchange = call i1 @same(ptr %bytes, i64 %size, ptr @exchanges, i64 {exchanges_size})
  %is_handshake = call i1 @same(ptr %bytes, i64 %size, ptr @handshakes, i64 {handshakes_size})
  %is_either = or i1 %is_put, %is_exchange
  %is_any = or i1 %is_either, %is_handshake
  ret i1 %is_any
no:
  ret i1 false
}}

; add to a counter if it is below its limit, which is the word after it; return whether it was
define i1 @entered(ptr %counter) uwtable {{
  %limit_at = getelementptr i64, ptr %counter, i64 1
  %limit = load i64, ptr %limit_at
  %before = atomicrmw add ptr %counter, i64 1 seq_cst
  %is_below = icmp slt i64 %before, %limit
  br i1 %is_below, label %yes, label %no
yes:
  ret i1 true
no:
  %ignored = atomicrmw sub ptr %counter, i64 1 seq_cst
  ret i1 false
}}

define void @left(ptr %counter) uwtable {{
  %before = atomicrmw sub ptr %counter, i64 1 seq_cst
  ret void
}}

; begin another tenth of a second, if it is over
define void @look_at_clock(ptr %gate) uwtable {{
  %time = alloca [2 x i64]
  %clock = inttoptr i64 {clock} to ptr
  %failed = call i32 %clock(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %nanoseconds_at = getelementptr i64, ptr %time, i64 1
  %nanoseconds = load i64, ptr %nanoseconds_at
  %tenths = mul i64 %seconds, 10
  %tenth = udiv i64 %nanoseconds, 100000000
  %now = add i64 %tenths, %tenth
  %window_at = getelementptr i64, ptr %gate, i64 {window}
  %window = load atomic i64, ptr %window_at seq_cst, align 8
  %is_over = icmp ne i64 %window, %now
  br i1 %is_over, label %begin, label %end
begin:
  %exchanged = cmpxchg ptr %window_at, i64 %window, i64 %now seq_cst seq_cst
  %is_ours = extractvalue {{ i64, i1 }} %exchanged, 1
  br i1 %is_ours, label %reset, label %end
reset:
  %checks = getelementptr i64, ptr %gate, i64 {checks}
  %first = getelementptr i64, ptr %gate, i64 {first}
  %further = getelementptr i64, ptr %gate, i64 {further}
  store atomic i64 0, ptr %checks seq_cst, align 8
  store atomic i64 0, ptr %first seq_cst, align 8
  store atomic i64 0, ptr %further seq_cst, align 8
  br label %end
end:
  ret void
}}

; return whether a stranger on the connection of this context may pass now
define i1 @admits(ptr %gate, ptr %context) uwtable {{
  call void @look_at_clock(ptr %gate)
  %window_at = getelementptr i64, ptr %gate, i64 {window}
  %window = load atomic i64, ptr %window_at seq_cst, align 8
  %seen_at = getelementptr i64, ptr %gate, i64 {seen}
  %seen = load ptr, ptr %seen_at
  %number = ptrtoint ptr %context to i64
  %multiplied = mul i64 %number, -7046029254386353131
  %slot = lshr i64 %multiplied, {connection_shift}
  %place = getelementptr i64, ptr %seen, i64 %slot
  %last = atomicrmw xchg ptr %place, i64 %window seq_cst
  %is_first = icmp ne i64 %last, %window
  br i1 %is_first, label %try_first, label %try_further
try_first:
  %first = getelementptr i64, ptr %gate, i64 {first}
  %is_one_of_first = call i1 @entered(ptr %first)
  br i1 %is_one_of_first, label %yes, label %try_further
try_further:
  %further = getelementptr i64, ptr %gate, i64 {further}
  %is_one_of_further = call i1 @entered(ptr %further)
  br i1 %is_one_of_further, label %yes, label %no
yes:
  ret i1 true
no:
  %rejected = getelementptr i64, ptr %gate, i64 {rejected}
  %ignored = atomicrmw add ptr %rejected, i64 1 seq_cst
  ret i1 false
}}

define void @process(ptr %gate, ptr %context, ptr %metadata, i64 %count, ptr %done, ptr %call) uwtable {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %tail ]
  %given = phi i64 [ 0, %entry ], [ %given_now, %tail ]
  %header = phi ptr [ null, %entry ], [ %header_now, %tail ]
  %target = phi ptr [ null, %entry ], [ %target_now, %tail ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %decide
body:
  %offset = mul i64 %i, {metadata_bytes}
  %key = getelementptr i8, ptr %metadata, i64 %offset
  %value = getelementptr i8, ptr %key, i64 {slice_bytes}
  %key_size = call i64 @size_of(ptr %key)
  %key_bytes = call ptr @bytes_of(ptr %key)
  %is_header = call i1 @same(ptr %key_bytes, i64 %key_size, ptr @name, i64 13)
  %is_path = call i1 @same(ptr %key_bytes, i64 %key_size, ptr @path, i64 5)
  br label %tail
tail:
  %one = zext i1 %is_header to i64
  %given_now = add i64 %given, %one
  %header_now = select i1 %is_header, ptr %value, ptr %header
  %target_now = select i1 %is_path, ptr %value, ptr %target
  %next = add i64 %i, 1
  br label %head
decide:
  %is_stream = call i1 @is_stream(ptr %target)
  %stream = zext i1 %is_stream to i32
  switch i64 %given, label %stranger [ i64 0, label %certified
                                       i64 1, label %look_up ]
look_up:
  %size = call i64 @size_of(ptr %header)
  %bytes = call ptr @bytes_of(ptr %header)
  %seed_at = getelementptr i64, ptr %gate, i64 {seed}
  %seed = load i64, ptr %seed_at
  %hash = call i64 @hash(ptr %bytes, i64 %size, i64 %seed)
  %is_known = call i1 @is_known(ptr %gate, i64 %hash)
  br i1 %is_known, label %known, label %unknown
certified:
  %certificates_at = getelementptr i64, ptr %gate, i64 {certificates}
  %certificates = load i64, ptr %certificates_at
  %are_trusted = icmp ne i64 %certificates, 0
  br i1 %are_trusted, label %ask_context, label %stranger
ask_context:
  %is_authenticated = inttoptr i64 {is_authenticated} to ptr
  %answer = call i32 %is_authenticated(ptr %context)
  %is_certified = icmp ne i32 %answer, 0
  %whose = ptrtoint ptr %context to i64
  br i1 %is_certified, label %known, label %stranger
known:
  %caller = phi i64 [ %hash, %look_up ], [ %whose, %ask_context ]
  %place = and i64 %caller, {refused_mask}
  %word = add i64 %place, {refused}
  %refused_at = getelementptr i64, ptr %gate, i64 %word
  %last_refused = load atomic i64, ptr %refused_at monotonic, align 8
  %is_it = icmp eq i64 %last_refused, %caller
  %is_refused = and i1 %is_it, %is_stream
  br i1 %is_refused, label %later, label %enter
enter:
  %counter = select i1 %is_stream, i64 {streams}, i64 {requests}
  %starting = getelementptr i64, ptr %gate, i64 %counter
  %may_start = call i1 @entered(ptr %starting)
  br i1 %may_start, label %pass, label %later
later:
  %hold_at = getelementptr i64, ptr %gate, i64 {hold}
  %hold = load ptr, ptr %hold_at
  call void %hold(ptr %done, ptr %call, i32 %stream, i64 %caller)
  ret void
unknown:
  call void @look_at_clock(ptr %gate)
  %checks = getelementptr i64, ptr %gate, i64 {checks}
  %may_be_checked = call i1 @entered(ptr %checks)
  br i1 %may_be_checked, label %check, label %unchecked
check:
  %check_at = getelementptr i64, ptr %gate, i64 {check}
  %python = load ptr, ptr %check_at
  call void %python(ptr %done, ptr %call, i32 %stream, ptr %context, i64 %hash, ptr %bytes, i64 %size)
  ret void
unchecked:
  %rejected = getelementptr i64, ptr %gate, i64 {rejected}
  %ignored = atomicrmw add ptr %rejected, i64 1 seq_cst
  br label %busy
stranger:
  %may_pass = call i1 @admits(ptr %gate, ptr %context)
  br i1 %may_pass, label %pass, label %reject
reject:
  %has_target = icmp ne ptr %target, null
  %has_none = icmp eq i64 %given, 0
  %may_be_action = and i1 %has_target, %has_none
  br i1 %may_be_action, label %compare, label %answer_given
compare:
  %target_size = call i64 @size_of(ptr %target)
  %target_bytes = call ptr @bytes_of(ptr %target)
  %is_action = call i1 @same(ptr %target_bytes, i64 %target_size, ptr @actions, i64 {actions_size})
  br i1 %is_action, label %busy, label %missing
answer_given:
  br i1 %has_none, label %missing, label %busy
missing:
  %missing_at = getelementptr i64, ptr %gate, i64 {missing}
  %no_token = load ptr, ptr %missing_at
  call void %done(ptr %call, ptr null, i64 0, ptr null, i64 0, i32 {unauthenticated}, ptr %no_token)
  ret void
busy:
  %busy_at = getelementptr i64, ptr %gate, i64 {busy}
  %too_many = load ptr, ptr %busy_at
  call void %done(ptr %call, ptr null, i64 0, ptr null, i64 0, i32 {unavailable}, ptr %too_many)
  ret void
pass:
  call void %done(ptr %call, ptr null, i64 0, ptr null, i64 0, i32 0, ptr null)
  ret void
}}
"""
"""``process`` is the function of a ``grpc_auth_metadata_processor``, and ``%gate`` its state."""
