"""The native functions of `session_hook`, as LLVM code.

``read_data`` takes the place of the function by which a stream reads a message. A request that another thread answers
goes through a queue: a list of requests, the newest first, that begins with one word, and a semaphore after it, which
whoever makes the list begin rings. ``ask`` puts a request there, and waits for its answer; ``take`` takes the whole
list, and one ring, which may also be that of the next list, and ``answer`` ends the wait of one request. A list from
which all are taken at once needs no lock (R. K. Treiber, "Systems programming: coping with parallelism", 1986).
"""

CODE = """
define i64 @now() uwtable {{
  %time = alloca [2 x i64]
  %clock = inttoptr i64 {clock} to ptr
  %ignored = call i32 %clock(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest_at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest_at
  %long = mul i64 %seconds, 1000000000
  %result = add i64 %long, %rest
  ret i64 %result
}}

define zeroext i1 @read_data(ptr %this, ptr %data) uwtable {{
entry:
  %table = load ptr, ptr %this
  %block = getelementptr i64, ptr %table, i64 -{own_table}
  %result = alloca [2 x i64], align 16
  %read = inttoptr i64 {read} to ptr
  call void @leave(ptr %block)
  call void @settle(ptr %block)
  br label %next
next:
  %before = phi i64 [ 0, %entry ], [ %hurried, %check ]
  %asked = call i64 @now()
  %is_there = call zeroext i1 %read(ptr %this, ptr %data)
  br i1 %is_there, label %look, label %done
look:
  %began = call i64 @now()
  %waited = sub i64 %began, %asked
  %is_hurried = icmp slt i64 %waited, {hurried_nanoseconds}
  %one_more = add i64 %before, 1
  %hurried = select i1 %is_hurried, i64 %one_more, i64 0
  %is_pipeline = icmp sge i64 %hurried, {hurried_most}
  br i1 %is_pipeline, label %refuse, label %time
refuse:
  %pipeline_at = getelementptr i64, ptr %block, i64 {is_pipeline}
  store i64 1, ptr %pipeline_at
  br label %done
time:
  %until_at = getelementptr i64, ptr %block, i64 {until}
  %until = load atomic i64, ptr %until_at monotonic, align 8
  %is_over = icmp sge i64 %began, %until
  %head_at = getelementptr i64, ptr %data, i64 1
  %head = load ptr, ptr %head_at
  %has_head = icmp ne ptr %head, null
  br i1 %has_head, label %done, label %plain
plain:
  %message_at = getelementptr i64, ptr %data, i64 3
  %message = load ptr, ptr %message_at
  %is_none = icmp eq ptr %message, null
  br i1 %is_none, label %done, label %ask
ask:
  %text_at = getelementptr i8, ptr %message, i64 16
  %text = load i64, ptr %text_at
  %length_at = getelementptr i8, ptr %message, i64 24
  %length = load i64, ptr %length_at
  br i1 %is_over, label %other, label %find
find:
  %answers_at = getelementptr i64, ptr %block, i64 {answers}
  %answers = load i64, ptr %answers_at
  %asker_at = getelementptr i64, ptr %block, i64 {asker}
  %asker = load i64, ptr %asker_at
  %target_at = getelementptr i64, ptr %block, i64 {target}
  %target = load i64, ptr %target_at
  %finder = inttoptr i64 {find} to ptr
  %size = call i64 %finder(i64 %answers, i64 %asker, i64 %text, i64 %length, i64 %target, i64 {room})
  %is_missing = icmp slt i64 %size, 0
  br i1 %is_missing, label %other, label %found
found:
  call void @count(ptr %block, i64 {received}, i64 %length)
  call void @count(ptr %block, i64 {sent}, i64 %size)
  call void @count(ptr %block, i64 {answered}, i64 1)
  call void @send(ptr %block, ptr %this, i64 %size, ptr %result)
  %ended = call i64 @now()
  %took = sub i64 %ended, %began
  call void @count(ptr %block, i64 {nanoseconds}, i64 %took)
  br label %sent
other:
  %is_long = icmp sge i64 %length, 8
  %is_short = icmp sle i64 %length, {request_room}
  %has_size = and i1 %is_long, %is_short
  br i1 %has_size, label %kind, label %done
kind:
  %text_ptr = inttoptr i64 %text to ptr
  %word = load i64, ptr %text_ptr, align 1
  %begin = and i64 %word, {begin_mask}
  %is_get = icmp eq i64 %begin, {get_begin}
  %is_write = icmp eq i64 %begin, {write_begin}
  %is_scan = icmp eq i64 %begin, {scan_begin}
  %is_row = or i1 %is_get, %is_write
  %is_small = or i1 %is_row, %is_scan
  br i1 %is_small, label %small, label %done
small:
  %other_field = select i1 %is_write, i64 {writes}, i64 {scans}
  %field = select i1 %is_get, i64 {gets}, i64 %other_field
  %queue_at = getelementptr i64, ptr %block, i64 %field
  %queue = load ptr, ptr %queue_at
  %has_queue = icmp ne ptr %queue, null
  br i1 %has_queue, label %enter, label %done
enter:
  %running_at = getelementptr i64, ptr %queue, i64 {running}
  %others = atomicrmw add ptr %running_at, i64 1 monotonic, align 8
  %counted_at = getelementptr i64, ptr %block, i64 {counted}
  store ptr %running_at, ptr %counted_at
  %is_alone = icmp eq i64 %others, 0
  br i1 %is_alone, label %done, label %wait
wait:
  %text_to = getelementptr i64, ptr %block, i64 {text}
  store i64 %text, ptr %text_to
  %length_to = getelementptr i64, ptr %block, i64 {length}
  store i64 %length, ptr %length_to
  call void @count(ptr %block, i64 {asked}, i64 1)
  %late = call i64 @ask(ptr %queue, ptr %block)
  %is_returned = icmp slt i64 %late, 0
  br i1 %is_returned, label %done, label %answered
answered:
  call void @leave(ptr %block)
  call void @send(ptr %block, ptr %this, i64 %late, ptr %result)
  call void @settle(ptr %block)
  br label %sent
sent:
  %status = load i64, ptr %result
  %is_ok = icmp eq i64 %status, 0
  br i1 %is_ok, label %check, label %lost
check:
  %written_at = getelementptr i8, ptr %result, i64 8
  %written = load i8, ptr %written_at
  %is_written = icmp ne i8 %written, 0
  br i1 %is_written, label %next, label %lost
lost:
  ret i1 false
done:
  ret i1 %is_there
}}

define void @send(ptr %block, ptr %stream, i64 %size, ptr %result) alwaysinline uwtable {{
  %buffer_at = getelementptr i64, ptr %block, i64 {buffer}
  %buffer = load ptr, ptr %buffer_at
  %size_at = getelementptr i8, ptr %buffer, i64 24
  store i64 %size, ptr %size_at
  store i64 0, ptr %result
  %payload = getelementptr i64, ptr %block, i64 {payload}
  %write = inttoptr i64 {write} to ptr
  call void %write(ptr sret([2 x i64]) %result, ptr %stream, ptr %payload)
  ret void
}}

define void @leave(ptr %block) uwtable {{
entry:
  %counted_at = getelementptr i64, ptr %block, i64 {counted}
  %running = load ptr, ptr %counted_at
  %is_counted = icmp ne ptr %running, null
  br i1 %is_counted, label %less, label %done
less:
  %before = atomicrmw sub ptr %running, i64 1 monotonic, align 8
  store ptr null, ptr %counted_at
  br label %done
done:
  ret void
}}

define void @settle(ptr %block) alwaysinline uwtable {{
  %asked_at = getelementptr i64, ptr %block, i64 {asked}
  %asked = load i64, ptr %asked_at
  %settled_at = getelementptr i64, ptr %block, i64 {settled}
  store atomic i64 %asked, ptr %settled_at release, align 8
  ret void
}}

define i64 @ask(ptr %queue, ptr %block) uwtable {{
entry:
  %size_at = getelementptr i64, ptr %block, i64 {size}
  store atomic i64 {unanswered}, ptr %size_at monotonic, align 8
  %next_at = getelementptr i64, ptr %block, i64 {next}
  %own = ptrtoint ptr %block to i64
  %last = load atomic i64, ptr %queue monotonic, align 8
  br label %push
push:
  %seen = phi i64 [ %last, %entry ], [ %there, %push ]
  store i64 %seen, ptr %next_at
  %pair = cmpxchg ptr %queue, i64 %seen, i64 %own release monotonic, align 8
  %there = extractvalue {{ i64, i1 }} %pair, 0
  %is_in = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %is_in, label %in, label %push
in:
  %is_first = icmp eq i64 %seen, 0
  br i1 %is_first, label %call, label %wait
call:
  %post = inttoptr i64 {sem_post} to ptr
  %bell = getelementptr i64, ptr %queue, i64 1
  %rung = call i32 %post(ptr %bell)
  br label %wait
wait:
  %turn = getelementptr i64, ptr %block, i64 {turn}
  %pause = inttoptr i64 {sem_wait} to ptr
  %woken = call i32 %pause(ptr %turn)
  %size = load atomic i64, ptr %size_at acquire, align 8
  %is_unanswered = icmp eq i64 %size, {unanswered}
  br i1 %is_unanswered, label %wait, label %over
over:
  ret i64 %size
}}

define i64 @take(ptr %queue) uwtable {{
look:
  %bell = getelementptr i64, ptr %queue, i64 1
  %all = atomicrmw xchg ptr %queue, i64 0 acquire, align 8
  %is_none = icmp eq i64 %all, 0
  br i1 %is_none, label %wait, label %done
wait:
  %pause = inttoptr i64 {sem_wait} to ptr
  %woken = call i32 %pause(ptr %bell)
  %more = atomicrmw xchg ptr %queue, i64 0 acquire, align 8
  ret i64 %more
done:
  %try = inttoptr i64 {sem_trywait} to ptr
  %silenced = call i32 %try(ptr %bell)
  ret i64 %all
}}

define void @answer(ptr %block, i64 %size) uwtable {{
  %size_at = getelementptr i64, ptr %block, i64 {size}
  store atomic i64 %size, ptr %size_at release, align 8
  %turn = getelementptr i64, ptr %block, i64 {turn}
  %post = inttoptr i64 {sem_post} to ptr
  %posted = call i32 %post(ptr %turn)
  ret void
}}

define void @count(ptr %block, i64 %field, i64 %more) alwaysinline uwtable {{
  %at = getelementptr i64, ptr %block, i64 %field
  %before = load i64, ptr %at
  %after = add i64 %before, %more
  store i64 %after, ptr %at
  ret void
}}
"""
