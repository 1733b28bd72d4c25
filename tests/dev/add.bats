#!/usr/bin/env bats
# add: what it makes, what it prints, what it refuses.

# shellcheck disable=SC2154 # set by common.bash
load common

@test "add prints the path alone, and the node is there" {
	for path in $(paths); do
		run_split add_on "$path" -t null
		[ "$status" -eq 0 ]
		[ "$output" = /dev/ublkb0 ]
		[ -z "$err" ]
		[ -b /dev/ublkb0 ]
		[ "$(blockdev --getsize64 /dev/ublkb0)" -eq 268435456000 ]
		[ "$(blockdev --getss /dev/ublkb0)" -eq 512 ]
		[ "$(blockdev --getpbsz /dev/ublkb0)" -eq 4096 ]
		[ "$(cat /sys/block/ublkb0/queue/max_hw_sectors_kb)" -eq 512 ]
		ublkctl del 0
		nothing_left
	done
}

@test "list --json tells what was asked for" {
	needs_batch
	ublkctl add -t null -b
	ublkctl list --json | jq -e '.devices[0].batch == true and .devices[0].size == 268435456000'
	ublkctl list --json | jq -e '.devices | length == 1'
	ublkctl list --json | jq -e '.devices[0] | .id == 0 and .target == "null" and .state == "live" and
		.data_mode == "copy" and .depth == 128 and .read_only == false and .node_missing == false and
		.uid == 0 and (.flags | index("UBLK_F_BATCH_IO") != null)'
	[ "$(ublkctl list --json | jq .devices[0].queues)" -eq "$(nr_mq 0)" ]
	[ "$(readlink "/proc/$(server_pid 0)/exe")" = "$(readlink -f "${BUILD:-build}/ublkctl")" ]
}

@test "a batch device runs the batch path, any other the per-I/O path" {
	needs_batch
	ublkctl add -t null
	ublkctl add -t null -b
	[ "$(ublkctl list -o BATCH --noheadings 0 | tr -d ' ')" = no ]
	[ "$(ublkctl list -o BATCH --noheadings 1 | tr -d ' ')" = yes ]
}

@test "without the batch path in the driver, --batch is refused by name and leaves nothing" {
	has_batch && skip "this driver has the batch path"
	run_split ublkctl add -t null -b
	[ "$status" -eq 3 ]
	[[ $err == *UBLK_F_BATCH_IO* ]]
	[[ $err == *"Linux 7.0"* ]]
	[ -z "$output" ]
	nothing_left
	ublkctl add -t null
	ublkctl del 0
	nothing_left
}

@test "wrong usage changes nothing" {
	for words in "-d 0" "-d 4097" "-q 0" "--block-size 513" "-s 16EiB" "-s 0" "-n -1" "-n abc" "--threads 3" \
		"-d 1x" "--max-io 4097" "--size 1000" "--block-size 4096 --physical-block-size 512" "extra"; do
		# shellcheck disable=SC2086
		run_split ublkctl add -t null $words
		[ "$status" -eq 2 ]
		[ "$(wc -l <<<"$err")" -eq 1 ]
		[[ $err == "ublkctl: add: "* ]]
		nothing_left
	done
	ublkctl add -t null
	for words in "" "abc" "-1" "0 abc" "--all 0" "/dev/sda" "0x0"; do
		# shellcheck disable=SC2086
		run_split ublkctl del $words
		[ "$status" -eq 2 ]
	done
	run_split ublkctl del ''
	[ "$status" -eq 2 ]
	run_split ublkctl del 0 ''
	[ "$status" -eq 2 ]
	state_is 0 live
}

@test "an id that is taken is refused, the next free one is found" {
	[ "$(ublkctl add -t null -n 7)" = /dev/ublkb7 ]
	run_split ublkctl add -t null -n 7
	[ "$status" -eq 5 ]
	[[ $err == *"device id 7 is taken"* ]]
	[ "$(ublkctl add -t null)" = /dev/ublkb0 ]
	state_is 7 live
	ublkctl del 0 7
	nothing_left
}

@test "sizes, block sizes and limits reach the block layer" {
	ublkctl add -t null -s 1MiB --block-size 4096 --physical-block-size 16384 --max-io 64K -d 16 -q 1
	[ "$(blockdev --getsize64 /dev/ublkb0)" -eq 1048576 ]
	[ "$(cat /sys/block/ublkb0/queue/logical_block_size)" -eq 4096 ]
	[ "$(cat /sys/block/ublkb0/queue/physical_block_size)" -eq 16384 ]
	[ "$(cat /sys/block/ublkb0/queue/max_hw_sectors_kb)" -eq 64 ]
	[ "$(nr_mq 0)" -eq 1 ]
	ublkctl list --json | jq -e '.devices[0] | .size == 1048576 and .block_size == 4096 and
		.physical_block_size == 16384 and .max_io == 65536 and .depth == 16 and .queues == 1 and .threads == 1'
}

@test "a read-only device takes no writes" {
	ublkctl add -t null --read-only
	[ "$(blockdev --getro /dev/ublkb0)" -eq 1 ]
	run dd if=/dev/zero of=/dev/ublkb0 bs=4k count=1 oflag=direct
	[ "$status" -ne 0 ]
	dd if=/dev/ublkb0 of=/dev/null bs=4k count=1 iflag=direct
	ublkctl list --json | jq -e '.devices[0].read_only == true'
}

@test "more queues than CPUs: what the driver grants is said and served" {
	run_split ublkctl add -t null -q 64
	[ "$status" -eq 0 ]
	[[ $err == *"granted $(nproc) of 64 queues"* ]]
	ublkctl list --json | jq -e ".devices[0].queues == $(nproc)"
	dd if=/dev/ublkb0 of=/dev/null bs=64k count=10 iflag=direct
	if has_batch; then
		# a thread for each queue that there is
		ublkctl add -t null -q 64 -b
		ublkctl list 1 --json | jq -e ".devices[0] | .queues == $(nproc) and .threads == $(nproc)"
		dd if=/dev/ublkb1 of=/dev/null bs=64k count=10 iflag=direct
	fi
}

@test "--mlock of more than there is: refused with both numbers, nobody pays for it" {
	run_split ublkctl add -t null -q 1 --max-io 32M --mlock
	[ "$status" -eq 1 ]
	[[ $err =~ ^ublkctl:\ add:\ cannot\ lock\ 4096\ MiB\ of\ I/O\ buffers:\ [0-9]+\ MiB\ of\ memory\ are\ available$ ]]
	run dmesg
	[[ $output != *'Out of memory'* ]]
	nothing_left
	ublkctl add -t null -q 1 -d 4 --mlock
	[ "$(<"/proc/$(server_pid 0)/oom_score_adj")" -eq -1000 ]
	ublkctl del 0
}

@test "the server holds none of the caller's descriptors and its own namespace with an empty root" {
	exec 9>"$BATS_TEST_TMPDIR/held"
	ublkctl add -t null 9>&9
	pid=$(server_pid 0)
	for p in $(pgrep ublkctl); do
		run ls -l "/proc/$p/fd"
		[[ $output != *"$BATS_TEST_TMPDIR"* ]]
		[ "$(readlink "/proc/$p/cwd")" = / ]
		for fd in 0 1 2; do [ "$(readlink "/proc/$p/fd/$fd")" = /dev/null ]; done
	done
	[ "$(readlink "/proc/$pid/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ]
	[ -z "$(ls "/proc/$pid/root/")" ]
	[ "$(awk '{print $6}' "/proc/$pid/stat")" -ne "$(awk '{print $6}' /proc/self/stat)" ]
	exec 9>&-
}

@test "I/O threads have the CPUs of their queue and are I/O flushers" {
	for path in $(paths); do
		add_on "$path" -t null -q 2
		pid=$(server_pid 0)
		for q in 0 1; do
			tid=$(grep -l "^ublk0.$q\$" /proc/"$pid"/task/*/comm | cut -d/ -f5)
			[ "$(sed -n 's/^Cpus_allowed_list:\t//p' "/proc/$pid/task/$tid/status")" = \
				"$(tr -d ' ' <"/sys/block/ublkb0/mq/$q/cpu_list")" ]
			# PF_MEMALLOC_NOIO and PF_LOCAL_THROTTLE of the flags word (proc(5), field 9)
			flags=$(sed 's/.*) //' "/proc/$pid/task/$tid/stat" | cut -d' ' -f7)
			[ $((flags & 0x80000)) -ne 0 ]
		done
		ublkctl del 0
	done
}

@test "a result that cannot be printed leaves no device" {
	local words
	for words in "-t null" "-t file -f $BATS_TEST_TMPDIR/new --create -s 1M"; do
		run_split bash -c "$PWD/${BUILD:-build}/ublkctl add $words >/dev/full"
		[ "$status" -eq 1 ]
		[[ $err == *"No space left on device"* ]]
		wait_for nothing_left
		[ ! -e "$BATS_TEST_TMPDIR/new" ]
	done
}

@test "closed descriptors: no message goes into the backing" {
	local want words img=/dev/shm/odd
	head -c 1000001 /dev/urandom >"$img"
	cp "$img" "$img.ref"
	# a path that cannot be printed is a failure
	while read -r want words; do
		echo "$words"
		run_split timeout 60 bash -c "'$PWD/${BUILD:-build}/ublkctl' add -t file -f $img $words"
		[ "$status" -eq "$want" ]
		cmp "$img" "$img.ref"
		[ "$want" -ne 0 ] || ublkctl del 0
		nothing_left
	done <<'END'
0 2>&-
1 >&-
1 <&- >&-
1 >&- 2>&-
0 <&- 2>&-
1 <&- >&- 2>&-
END
	timeout -s TERM 3 bash -c "exec '$PWD/${BUILD:-build}/ublkctl' add -t file -f $img --foreground <&- >&- 2>&-" || true
	cmp "$img" "$img.ref"
	nothing_left
	rm "$img" "$img.ref"
}

@test "limits of the command are not the server's: file size, CPU time" {
	local img=/dev/shm/limited
	truncate -s 4M "$img"
	bash -c "ulimit -f 1000; ulimit -t 1; exec '$PWD/${BUILD:-build}/ublkctl' add -t file -f $img"
	grep -q 'Max file size *unlimited *unlimited' "/proc/$(server_pid 0)/limits"
	grep -q 'Max cpu time *unlimited *unlimited' "/proc/$(server_pid 0)/limits"
	dd if=/dev/zero of=/dev/ublkb0 bs=64k seek=60 count=1 oflag=direct status=none
	ublkctl del 0
	rm "$img"
}

@test "a reader that has gone: no device stays that nobody was told of" {
	run_split bash -o pipefail -c "'$PWD/${BUILD:-build}/ublkctl' add -t null | true"
	[ "$status" -eq 1 ]
	[[ $err == *"device 0 is deleted again: Broken pipe" ]]
	nothing_left
}

@test "without a mount namespace of its own a server leaves the caller's root and /proc alone" {
	local before
	before=$(</proc/self/mountinfo)
	echo 0 >/proc/sys/user/max_mnt_namespaces
	ublkctl add -t null
	[ "$(readlink "/proc/$(server_pid 0)/ns/mnt")" = "$(readlink /proc/self/ns/mnt)" ]
	[ "$(</proc/self/mountinfo)" = "$before" ]
	ublkctl del 0
	echo 1000 >/proc/sys/user/max_mnt_namespaces
	[ "$(</proc/self/mountinfo)" = "$before" ]
	nothing_left
}

@test "add --json prints the device like list --json" {
	ublkctl add -t null --json >"$BATS_TEST_TMPDIR/a"
	ublkctl list --json >"$BATS_TEST_TMPDIR/b"
	cmp "$BATS_TEST_TMPDIR/a" "$BATS_TEST_TMPDIR/b"
}

@test "--no-partscan: no partitions on a new driver, refused by name on an old one" {
	run_split ublkctl add -t null --no-partscan
	if has_batch; then
		[ "$status" -eq 0 ]
		ublkctl list --json | jq -e '.devices[0].flags | index("UBLK_F_NO_AUTO_PART_SCAN") != null'
	else
		[ "$status" -eq 3 ]
		[[ $err == *UBLK_F_NO_AUTO_PART_SCAN* ]]
		nothing_left
	fi
}

@test "--foreground serves until SIGTERM or SIGINT, tells the service manager, leaves nothing" {
	for sig in TERM INT HUP; do
		rm -f "$BATS_TEST_TMPDIR/notify"
		perl -MSocket -e 'socket(S, AF_UNIX, SOCK_DGRAM, 0); unlink $ARGV[0];
			bind(S, sockaddr_un($ARGV[0])) or die; $SIG{ALRM} = sub { die "no datagram" };
			alarm 20; recv(S, $m, 100, 0); print $m' "$BATS_TEST_TMPDIR/notify" >"$BATS_TEST_TMPDIR/got" &
		listener=$!
		wait_for test -S "$BATS_TEST_TMPDIR/notify"
		NOTIFY_SOCKET=$BATS_TEST_TMPDIR/notify \
			"$PWD/${BUILD:-build}/ublkctl" add -t null --foreground >"$BATS_TEST_TMPDIR/out" 3>&- &
		pid=$!
		wait "$listener"
		[ "$(cat "$BATS_TEST_TMPDIR/got")" = READY=1 ]
		[ "$(cat "$BATS_TEST_TMPDIR/out")" = /dev/ublkb0 ]
		[ -b /dev/ublkb0 ]
		[ "$(server_pid 0)" -eq "$pid" ]
		dd if=/dev/ublkb0 of=/dev/null bs=4k count=10 iflag=direct
		kill -"$sig" "$pid"
		wait "$pid"
		wait_for nothing_left
	done
}

@test "io_uring forbidden by the sysctl: said with its value" {
	[ -e /proc/sys/kernel/io_uring_disabled ]
	echo 2 >/proc/sys/kernel/io_uring_disabled
	run_split ublkctl feature
	echo 0 >/proc/sys/kernel/io_uring_disabled
	[ "$status" -eq 3 ]
	[[ $err == *"kernel.io_uring_disabled is 2"* ]]
}

@test "no room for another process: said at every step, nothing is left" {
	local group=/sys/fs/cgroup/few n
	echo +pids >/sys/fs/cgroup/cgroup.subtree_control
	mkdir "$group"
	# add, the first child, the server, what it forks to delete the device, its two threads
	for n in 1 2 3 4 5; do
		echo "$n processes"
		echo "$n" >"$group/pids.max"
		# shellcheck disable=SC2016 # for the other shell
		# there is no process for the leak check of a sanitizer either
		run_split env ASAN_OPTIONS=detect_leaks=0 \
			sh -c 'echo $$ >"$1/cgroup.procs" && exec "$2" add -t null -q 2' sh "$group" \
			"$PWD/${BUILD:-build}/ublkctl"
		[ "$status" -eq 1 ]
		[[ $err == *"Resource temporarily unavailable"* ]]
		[ "$(wc -l <<<"$err")" -eq 1 ]
		nothing_left
	done
	rmdir "$group"
}

@test "without privileges: status 6 and one line" {
	for words in "add -t null" feature "del 0"; do
		# shellcheck disable=SC2086
		run_split setpriv --reuid 65534 --regid 65534 --clear-groups "${BUILD:-build}/ublkctl" $words
		[ "$status" -eq 6 ]
		[ "$(wc -l <<<"$err")" -eq 1 ]
	done
	nothing_left
}

@test "list works for a normal user" {
	ublkctl add -t null -s 1G
	run_split setpriv --reuid 65534 --regid 65534 --clear-groups "${BUILD:-build}/ublkctl" list --json
	[ "$status" -eq 0 ]
	jq -e '.devices[0] | .id == 0 and .size == 1073741824 and .state == "live" and .target == "null" and .flags == null' <<<"$output"
	[ "$(wc -l <<<"$err")" -eq 1 ]
}

@test "names that are no UTF-8 still make valid JSON" {
	ublkctl add -t file -f "$BATS_TEST_TMPDIR/"$'a\xff\xfe\xc3\xa4' --create -s 1M
	ublkctl list --json >"$BATS_TEST_TMPDIR/json"
	perl -MEncode -0777 -ne 'decode("UTF-8", $_, Encode::FB_CROAK)' "$BATS_TEST_TMPDIR/json"
	[ "$(jq -r .devices[0].backing "$BATS_TEST_TMPDIR/json")" = "$BATS_TEST_TMPDIR/"$'a\xef\xbf\xbd\xef\xbf\xbd\xc3\xa4' ]
}
