#!/usr/bin/env bats
# bench on a real driver; scheduler and queue attributes of a disk.
#
# shellcheck disable=SC2154,SC2016 # set by bats and common.bash; expanded elsewhere

load common

# What the two I/O paths of this driver give in rows for each mode.
nr_paths() {
	paths | wc -l
}

# bench with these words, in the background until its first device is there; its id in $bench.
bench_begin() { # WORD...
	# a background process of a script would ignore SIGINT, as whoever starts it so wants
	env --default-signal=INT "$PWD/${BUILD:-build}/ublkctl" bench "$@" >"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/err" 3>&- &
	bench=$!
	wait_for test -e /dev/ublkb0
}

# It ended by a signal, without output, without a message, and without leaving anything.
bench_ended_by() { # STATUS
	status=0
	wait "$bench" || status=$?
	cat "$BATS_TEST_TMPDIR/err"
	[ "$status" -eq "$1" ]
	[ ! -s "$BATS_TEST_TMPDIR/out" ]
	[ ! -s "$BATS_TEST_TMPDIR/err" ]
	nothing_left
}

@test "two modes on a null device: numbers that can be, and no device is left" {
	run_split ublkctl bench --ios 2000 --repeat 2 --modes copy,user-copy --json
	[ "$status" -eq 0 ]
	jq -e --argjson n "$((2 * $(nr_paths)))" '(.results | length) == $n and
		all(.results[]; .iops > 0 and .bandwidth >= .iops * 4095 and .target == "null" and
			.time_ns > 0 and .latency_p50_ns > 0 and .latency_p50_ns <= .latency_p99_ns and
			.latency_p99_ns <= .latency_p999_ns and .latency_mean_ns > 0 and
			.server_cpu_ns > 0 and .spread_percent >= 0 and .baseline_ratio == null) and
		all(.results[]; (.batch_ratio != null) == .batch)' <<<"$output"
	jq -e '[.results[].data_mode] | unique == ["copy", "user-copy"]' <<<"$output"
	jq -e '.workload | .ios == 2000 and .seconds == null and .rw == "read" and .block_size == 4096' <<<"$output"
	nothing_left
}

@test "every mode that the driver has, as a table, without latencies" {
	run_split ublkctl bench --ios 500 --repeat 1 --no-latency
	[ "$status" -eq 0 ]
	[ -z "$err" ]
	local mode path want=0
	for mode in copy get-data user-copy zero-copy auto-zc auto-zc-fallback; do
		for path in per-io batch; do
			if [ "$mode:$path" = get-data:batch ] || ! has_mode "$mode" "$path"; then continue; fi
			want=$((want + 1))
			grep -qE "^null +$mode +$([ "$path" = batch ] && echo yes || echo no) +[0-9]+ .* - +- +- +- " <<<"$output"
		done
	done
	[ "$(wc -l <<<"$output")" -eq $((want + 1)) ]
	nothing_left
}

@test "a mode that the driver lacks is refused by name" {
	has_batch && skip "this driver has all"
	run_split ublkctl bench --modes copy:batch
	[ "$status" -eq 3 ]
	[[ $err == *UBLK_F_BATCH_IO* ]]
	run_split ublkctl bench --modes copy,auto-zc
	[ "$status" -eq 3 ]
	[[ $err == *UBLK_F_AUTO_BUF_REG* ]]
	nothing_left
}

@test "a file, read while it is mounted; a baseline; writes only with --force, never to what is mounted" {
	local img=$BATS_TEST_TMPDIR/img sum disk
	truncate -s 32M "$img"
	mkfs.ext4 -q "$img"
	modprobe loop
	disk=$(losetup -f --show "$img")
	mount "$disk" /mnt
	sync
	sum=$(md5sum <"$img")
	run_split ublkctl bench -t file -f "$disk" --ios 500 --repeat 1 --modes copy --baseline "$disk" --json
	[ "$status" -eq 0 ]
	jq -e --arg d "$disk" '.results[0].target == $d and .results[0].data_mode == null and
		.results[0].baseline_ratio == null and .results[1].baseline_ratio > 0 and
		.workload.backing == $d' <<<"$output"
	run_split ublkctl bench -t file -f "$disk" --ios 500 --rw write
	[ "$status" -eq 2 ]
	run_split ublkctl bench -t file -f "$disk" --ios 500 --rw mix --force
	[ "$status" -eq 5 ]
	run_split ublkctl bench --modes copy --ios 500 --rw write --baseline "$disk" --force
	[ "$status" -eq 5 ]
	[ "$sum" = "$(md5sum <"$img")" ]
	umount /mnt
	run_split ublkctl bench -t file -f "$disk" --ios 500 --repeat 1 --modes copy:per-io --rw write --force
	[ "$status" -eq 0 ]
	[ "$sum" != "$(md5sum <"$img")" ]
	losetup -d "$disk"
	nothing_left
}

@test "several jobs, by time" {
	run_split ublkctl bench --seconds 1 --repeat 1 --modes copy:per-io --jobs 3 --iodepth 4 --rw mix --json
	[ "$status" -eq 0 ]
	jq -e '.results[0].iops > 0 and .workload.jobs == 3 and .workload.seconds == 1' <<<"$output"
	nothing_left
}

@test "SIGINT and SIGTERM in the middle: no device is left" {
	bench_begin --seconds 60 --modes copy
	kill -INT "$bench"
	bench_ended_by 130
	bench_begin --seconds 60 --modes user-copy
	kill -TERM "$bench"
	bench_ended_by 143
}

has_read() { # IOS: so many reads are done
	[ "$(awk '{print $1}' /sys/block/ublkb0/stat)" -ge "$1" ]
}

@test "SIGTERM while the server hangs: the device goes with its requests" {
	bench_begin --seconds 60 --modes copy:per-io
	wait_for has_read 1000
	kill -STOP "$(server_pid 0)"
	kill -TERM "$bench"
	bench_ended_by 143
}

@test "SIGTERM before the load, with a server that hangs: the device goes" {
	bench_begin --seconds 60 --modes copy:per-io
	kill -STOP "$bench"
	wait_for state_is 0 live
	sleep 1 # what the kernel itself reads of a new disk
	kill -STOP "$(server_pid 0)"
	kill -TERM "$bench"
	kill -CONT "$bench"
	bench_ended_by 143
}

@test "--plot without gnuplot: status 3, nothing is made" {
	# a PATH with nothing in it but what the program itself is
	run_split env PATH="$BATS_TEST_TMPDIR" "$PWD/${BUILD:-build}/ublkctl" bench --plot "$BATS_TEST_TMPDIR/x.svg"
	[ "$status" -eq 3 ]
	[[ $err == *gnuplot* ]]
	nothing_left
}

@test "what cannot be drawn or timed is refused, and leaves no device" {
	run_split ublkctl bench --ios 200 --modes copy:per-io --plot /nowhere/x.svg --json
	[ "$status" -eq 1 ]
	[ -z "$output" ]
	[ "$err" = "ublkctl: bench: --plot: cannot write /nowhere/x.svg: No such file or directory" ]
	[ ! -e /dev/ublkb0 ]
	# all of a few are done in one look at the ring, or not: a rate, or none that could be one
	for ios in 1 2 4 8; do
		run_split ublkctl bench --ios $ios --repeat 1 --modes copy:per-io --json
		if [ "$status" -eq 0 ]; then
			jq -e '.results[0].iops | . > 0 and . < 1e7' <<<"$output"
		else
			[ "$status" -eq 2 ]
			[ "$err" = "ublkctl: bench: --ios: $ios for 1 jobs are too few to be timed" ]
		fi
	done
	nothing_left
}

@test "--plot: a line for each mode, a column for each path, the baseline across" {
	local bin=$BATS_TEST_TMPDIR/bin img=$BATS_TEST_TMPDIR/img
	mkdir "$bin"
	printf '#!/bin/sh\ntee "%s/script" | %s\n' "$BATS_TEST_TMPDIR" "$(command -v gnuplot)" >"$bin/gnuplot"
	chmod +x "$bin/gnuplot"
	truncate -s 1M "$img"
	modprobe loop
	img=$(losetup -f --show "$img")
	PATH=$bin:$PATH run_split ublkctl bench --ios 200 --repeat 1 --modes copy,get-data --baseline "$img" \
		--plot "it's.svg"
	losetup -d "$img"
	[ "$status" -eq 0 ]
	cat "$BATS_TEST_TMPDIR/script"
	grep -qx "set output 'it''s.svg'" "$BATS_TEST_TMPDIR/script"
	grep -qE '^"copy" [0-9]+ ([0-9]+|NaN)$' "$BATS_TEST_TMPDIR/script"
	grep -qE '^"get-data" [0-9]+ NaN$' "$BATS_TEST_TMPDIR/script"
	grep -qE ", [0-9]+ with lines title '$img'\$" "$BATS_TEST_TMPDIR/script"
	[ -z "$err" ]
	for name in '<svg' $(paths | sed 's/per-io/per-I\/O/') copy get-data 'requests per second' "$img"; do
		grep -qF "$name" "it's.svg"
	done
	# one path alone
	PATH=$bin:$PATH run_split ublkctl bench --ios 200 --repeat 1 --modes copy:per-io --plot one.svg
	[ "$status" -eq 0 ]
	[ -z "$err" ]
	grep -qF per-I/O one.svg
	! grep -qF batch one.svg || false
	printf '#!/bin/sh\nexit 1\n' >"$bin/gnuplot"
	PATH=$bin:$PATH run_split ublkctl bench --ios 200 --repeat 1 --modes copy:per-io --plot x.png
	[ "$status" -eq 1 ]
	[[ $err == *"could not draw x.png"* ]]
	nothing_left
}

@test "add --scheduler: none by default, the named one, or the kernel's; start sets it again" {
	local d kernels
	d=$(ublkctl add -t null -q 1 --scheduler kernel)
	kernels=$(ublkctl list 0 --raw --noheadings -o SCHEDULER)
	grep -q "\[$kernels\]" /sys/block/ublkb0/queue/scheduler
	ublkctl del 0
	d=$(ublkctl add -t null -q 1)
	grep -q '\[none\]' /sys/block/ublkb0/queue/scheduler
	[ "$(ublkctl list 0 --json | jq -r .devices[0].scheduler)" = none ]
	ublkctl show 0 | grep -qE '^scheduler: +none$'
	ublkctl del 0
	d=$(ublkctl add -t null -q 1 --scheduler mq-deadline)
	grep -q '\[mq-deadline\]' /sys/block/ublkb0/queue/scheduler
	ublkctl del 0
	[ "$d" = /dev/ublkb0 ]
}

@test "add --queue-attr: set before add returns, again by start; kept over recover" {
	local d
	d=$(ublkctl add -t null -q 1 -r reissue --scheduler mq-deadline \
		--queue-attr nomerges=2,iostats=0,read_ahead_kb=64,rq_affinity=2)
	expect_attrs() {
		[ "$(queue_attr "$d" nomerges)" = 2 ]
		[ "$(queue_attr "$d" iostats)" = 0 ]
		[ "$(queue_attr "$d" read_ahead_kb)" = 64 ]
		[ "$(queue_attr "$d" rq_affinity)" = 2 ]
		grep -q '\[mq-deadline\]' /sys/block/ublkb0/queue/scheduler
	}
	expect_attrs
	kill -9 "$(server_pid 0)"
	ublkctl recover 0
	expect_attrs
	ublkctl stop 0
	ublkctl start 0
	expect_attrs
	[ "$(ublkctl list 0 --json | jq -r .devices[0].queue_attr)" = \
		nomerges=2,iostats=0,read_ahead_kb=64,rq_affinity=2 ]
	ublkctl del 0
}

@test "what cannot be set is said, and is no failure" {
	mount -o remount,ro /sys
	run_split ublkctl add -t null --queue-attr nomerges=1
	mount -o remount,rw /sys
	[ "$status" -eq 0 ]
	[ "$output" = /dev/ublkb0 ]
	[[ $err == *"queue/scheduler is not set to none: Read-only file system"* ]]
	[[ $err == *"queue/nomerges is not set to 1: Read-only file system"* ]]
	ublkctl del 0
}

@test "other attributes and values are wrong usage" {
	for word in max_sectors_kb=4 nomerges nomerges=3 'nomerges=1,' ../nomerges=1 nomerges=1,nomerges=1; do
		refused 2 --queue-attr -t null --queue-attr "$word"
	done
	refused 2 --scheduler -t null --scheduler bfq
}
