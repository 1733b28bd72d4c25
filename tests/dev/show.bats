#!/usr/bin/env bats
# show and set-affinity: what they say against /proc, /sys and other programs.
#
# shellcheck disable=SC2154 # set by bats and common.bash

load common

bats_require_minimum_version 1.5.0

# Members of the device that show --json prints; a jq filter.
shown() { # ID FILTER
	ublkctl show "$1" --json 2>/dev/null | jq -r ".device | $2"
}

# true if the filter is
shows() { # ID FILTER
	ublkctl show "$1" --json 2>/dev/null | jq -e ".device | $2" >/dev/null || {
		echo "not so: $2"
		ublkctl show "$1" --json
		return 1
	}
}

# The thread with this name, without ublkctl.
tid_of() { # PID NAME
	local comm
	for comm in "/proc/$1/task"/*/comm; do
		if [ "$(<"$comm")" = "$2" ]; then basename "$(dirname "$comm")"; fi
	done
}

# CPUs of the I/O thread T, as the kernel has them: "0,1" or "0-1" by taskset's version
cpus_of() { # ID T
	taskset -pc "$(tid_of "$(server_pid "$1")" "ublk$1.$2")" | sed 's/.*: //; s/^0,1$/0-1/'
}

status_of() { # PID KEY
	sed -n "s/^$2:[[:space:]]*\([^[:space:]]*\).*/\1/p" "/proc/$1/status"
}

# Is the journalctl that hangs gone?
no_sleeper() {
	! pgrep -fx 'sleep 54321'
}

# Done in so many ms. What would block, blocks for ever; emulated guests can be slow.
in_time() { # MS COMMAND...
	local start end ms=$1
	shift
	start=$(date +%s%3N)
	"$@" || return
	end=$(date +%s%3N)
	echo "$((end - start)) ms"
	[ $((end - start)) -lt "$ms" ]
}

@test "show --json: all keys of list with their values, and those of its own" {
	ublkctl add -t null -n 3 -q 2 -d 16 -s 1G --max-io 64K --read-only
	jq -e --argjson l "$(ublkctl list 3 --json)" '
		(.ublkctl == $l.ublkctl) and (keys == ["device", "ublkctl"]) and
		(.device | with_entries(select(.key as $k | $l.devices[0] | has($k)))) == $l.devices[0] and
		(.device | keys_unsorted)[($l.devices[0] | length):] ==
			["parameters", "queue_map", "io_threads", "record", "holders", "server", "log"]' \
		<<<"$(ublkctl show 3 --json)"
	# the same device by its paths
	[ "$(shown /dev/ublkb3 .id)" = 3 ]
	[ "$(shown /dev/ublkc3 .created)" = "$(jq -r .created /run/ublkctl/3.json)" ]
	ublkctl del 3
	nothing_left
}

@test "show: parameters are those of the disk" {
	ublkctl add -t null -s 3G --block-size 4096 --physical-block-size 8K --max-io 64K --read-only
	shows 0 ".parameters.basic.dev_sectors == $(cat /sys/block/ublkb0/size)"
	[ "$((1 << $(shown 0 .parameters.basic.logical_bs_shift)))" -eq "$(queue_attr ublkb0 logical_block_size)" ]
	[ "$((1 << $(shown 0 .parameters.basic.physical_bs_shift)))" -eq "$(queue_attr ublkb0 physical_block_size)" ]
	[ "$((1 << $(shown 0 .parameters.basic.io_min_shift)))" -eq "$(queue_attr ublkb0 minimum_io_size)" ]
	[ "$((1 << $(shown 0 .parameters.basic.io_opt_shift)))" -eq "$(queue_attr ublkb0 optimal_io_size)" ]
	[ "$(($(shown 0 .parameters.basic.max_sectors) / 2))" -eq "$(queue_attr ublkb0 max_hw_sectors_kb)" ]
	# UBLK_ATTR_READ_ONLY is bit 0
	[ "$(($(shown 0 .parameters.basic.attrs) & 1))" -eq "$(cat /sys/block/ublkb0/ro)" ]
	[ "$(shown 0 '.parameters.devt | "\(.disk_major):\(.disk_minor)"')" = "$(cat /sys/block/ublkb0/dev)" ]
	[ "$(shown 0 '.parameters.devt | "\(.char_major):\(.char_minor)"')" = "$(cat /sys/class/ublk-char/ublkc0/dev)" ]
	shows 0 '.parameters | .zoned == null and .basic.virt_boundary_mask == "0x0"'
	ublkctl del 0
}

@test "show: queues, their CPUs and their threads, on both paths" {
	local path pid
	for path in $(paths); do
		add_on "$path" -t null -n 1 -q 2
		pid=$(server_pid 1)
		for q in 0 1; do
			[ "$(shown 1 ".queue_map[$q].cpus")" = "$(sed 's/ //g; s/^0,1$/0-1/' "/sys/block/ublkb1/mq/$q/cpu_list")" ]
			[ "$(shown 1 ".queue_map[$q].threads | tostring")" = "[$(tid_of "$pid" "ublk1.$q")]" ]
			[ "$(shown 1 ".io_threads[$q].cpus")" = "$(cpus_of 1 "$q")" ]
		done
		shows 1 '.queue_map | length == 2 and all(.affinity == null)'
		ublkctl del 1
	done
	has_batch || return 0
	ublkctl add -t null -b -n 1 -q 2 --threads 1
	shows 1 ".io_threads == [{thread: 0, tid: $(tid_of "$(server_pid 1)" ublk1.0), queues: [0, 1], cpus: \"0-1\", io_flusher: true}]"
	shows 1 '.queue_map[0].threads == .queue_map[1].threads'
	ublkctl del 1
	ublkctl add -t null -b -n 1 -q 2 --threads 5
	pid=$(server_pid 1)
	[ "$(shown 1 '.queue_map[1].threads | join(" ")')" = "$(tid_of "$pid" ublk1.1) $(tid_of "$pid" ublk1.3)" ]
	shows 1 '.queue_map[0].threads | length == 3'
	ublkctl del 1
	nothing_left
}

@test "show: the state of the server process" {
	local pid
	ublkctl add -t null
	pid=$(server_pid 0)
	echo -500 >"/proc/$pid/oom_score_adj"
	shows 0 ".server | .pid == $pid and .oom_score_adj == -500 and .process_state == \"S\""
	[ "$(shown 0 .server.threads)" -eq "$(find "/proc/$pid/task" -mindepth 1 -maxdepth 1 | wc -l)" ]
	[ "$(shown 0 .server.locked_memory)" -eq "$(($(status_of "$pid" VmLck) * 1024))" ]
	[ "$(shown 0 .server.rss)" -eq "$(($(status_of "$pid" VmRSS) * 1024))" ]
	[ "$(readlink "/proc/$pid/ns/mnt")" != "$(readlink /proc/1/ns/mnt)" ]
	shows 0 '.server.own_mount_namespace'
	ublkctl del 0
	nothing_left
}

@test "show: I/O flushers are seen, and threads that are none" {
	ublkctl add -t null -n 0 2>&1
	# without CAP_SYS_RESOURCE the server is refused to be one, and says so
	run_split setpriv --bounding-set -sys_resource "$PWD/${BUILD:-build}/ublkctl" add -t null -n 1
	[ "$status" -eq 0 ]
	[[ $err == *"no I/O flushers"* ]]
	shows 0 '.io_threads | length > 0 and all(.io_flusher)'
	shows 1 '.io_threads | length > 0 and all(.io_flusher == false)'
	ublkctl del --all
	nothing_left
}

@test "show: names and values in lines, unknown is -" {
	local text
	ublkctl add -t null -q 1
	run_split ublkctl show 0
	[ "$status" -eq 0 ]
	[ -z "$err" ]
	text=$output
	run ! grep -vE '^[a-z][a-z0-9 ]*: +[^ ].*$' <<<"$text"
	run ! grep ' $' <<<"$text"
	grep -qx 'backing: *-' <<<"$text"
	grep -qx 'size: *250G' <<<"$text"
	grep -qx "server pid: *$(server_pid 0)" <<<"$text"
	grep -qx "queue 0: *cpus 0-1 affinity - threads $(tid_of "$(server_pid 0)" ublk0.0)" <<<"$text"
	grep -qx 'record trusted: *yes' <<<"$text"
	grep -qx 'holders: *none' <<<"$text"
	[ "$(ublkctl show 0 --bytes | sed -n 's/^size: *//p')" -eq "$(($(cat /sys/block/ublkb0/size) * 512))" ]
	# the order is that of the JSON
	[ "$(ublkctl show 0 | sed -n 's/: .*//p' | head -n 28 | tr ' ' '_')" = "$(shown 0 'keys_unsorted[:28][]')" ]
	[ "$(ublkctl show 0 2>&1 >/dev/full)" = "ublkctl: show: cannot write to standard output: No space left on device" ]
	ublkctl del 0
}

@test "show: who uses the disk" {
	ublkctl add -t null
	shows 0 '.holders == []'
	hold_open /dev/ublkb0 100
	shows 0 ".holders == [\"open by process $opener (sleep)\"]"
	kill "$opener"
	wait "$opener" || true
	ublkctl del 0
}

@test "show: why a record is not believed" {
	ublkctl add -t null -n 0
	ublkctl add -t null -n 1
	shows 0 '.record == {path: "/run/ublkctl/0.json", trusted: true, reason: null}'
	chmod 666 /run/ublkctl/0.json
	shows 0 '.record.trusted == false and .record.reason == "others could have written it" and .target == "unknown"'
	chmod 644 /run/ublkctl/0.json
	jq '.id = 0' /run/ublkctl/1.json >/run/ublkctl/x && cp /run/ublkctl/0.json "$BATS_TEST_TMPDIR" && mv /run/ublkctl/x /run/ublkctl/0.json
	shows 0 '.record.reason == "it is about another device"'
	echo '{' >/run/ublkctl/0.json
	shows 0 '.record.reason == "its content is not understood"'
	rm /run/ublkctl/0.json
	shows 0 '.record.reason == "there is none"'
	# the driver's word is there all the same
	shows 0 ".server.pid == $(server_pid 0) and (.io_threads | length > 0)"
	cp "$BATS_TEST_TMPDIR/0.json" /run/ublkctl/0.json
	ublkctl del --all
	nothing_left
}

@test "show: without a server" {
	local pid
	ublkctl add -t null -r queue
	pid=$(server_pid 0)
	kill -9 "$pid"
	wait_for state_is 0 quiesced
	shows 0 '.server == null and .io_threads == null and .pid == null and .parameters.basic.dev_sectors == 524288000'
	shows 0 '.queue_map[0] | .threads == null and .cpus != null'
	ublkctl del --force 0
}

@test "show: no such device, wrong words" {
	run_split ublkctl show 77
	[ "$status" -eq 4 ]
	[ -z "$output" ]
	[ "$err" = "ublkctl: show: no device 77" ]
	for words in "" "0 1" x; do
		# shellcheck disable=SC2086 # words
		run_split ublkctl show $words
		[ "$status" -eq 2 ]
		[ -z "$output" ]
	done
}

@test "show: a normal user gets what can be read, and one hint" {
	ublkctl add -t null -q 2
	run_split setpriv --reuid 1000 --regid 1000 --clear-groups "$PWD/${BUILD:-build}/ublkctl" show 0 --json
	[ "$status" -eq 0 ]
	[[ $err == "ublkctl: show: only what sysfs and /proc tell: "* && $err != *$'\n'* ]]
	jq -e --argjson pid "$(server_pid 0)" '.device | .parameters == null and .holders == null and .flags == null and
		.server.pid == $pid and .server.own_mount_namespace == null and .server.rss > 0 and
		(.queue_map | length) == 2 and (.io_threads | all(.io_flusher))' <<<"$output"
	ublkctl del 0
}

@test "show: a stopped server, and a device that cannot be stopped, do not block it" {
	local pid reader before
	ublkctl add -t null
	pid=$(server_pid 0)
	kill -STOP "$pid"
	wait_for grep -q '^State:	T' "/proc/$pid/status"
	in_time 15000 shows 0 '.server.process_state == "T" and .parameters.basic.logical_bs_shift == 9'
	dd if=/dev/ublkb0 of=/dev/null bs=4k count=1 iflag=direct 3>&- 2>/dev/null &
	reader=$!
	wait_for grep -q 'dd' "/proc/$reader/comm"
	sleep 0.5
	# STOP_DEV holds the driver's lock now, and waits for the server
	run ublkctl del --force --timeout 1 0
	[ "$status" -eq 7 ]
	in_time 15000 shows 0 ".parameters == null and .server.process_state == \"T\" and .state != null and
		.queue_map[0].cpus != null and
		(.holders == [\"open by process $reader (dd)\"] or (.holders == null and .device == null))"
	in_time 15000 ublkctl show 0 >/dev/null
	in_time 15000 ublkctl set-affinity 0 0=0
	[ "$(cpus_of 0 0)" = 0 ]
	kill -CONT "$pid"
	wait "$reader" || true
	wait_for nothing_left
}

@test "show: the last messages of the server's log" {
	local fake=/usr/bin/journalctl
	mkdir -p /run/log/journal
	rm -f "$fake"
	ublkctl add -t null -n 5
	shows 5 '.log == null'
	printf '#!/bin/sh\necho "$*"\necho "b	c"\n' >"$fake"
	chmod +x "$fake"
	shows 5 '.log | length == 2 and (.[0] | endswith("-t ublkctl[5]")) and .[1] == "b\tc"'
	ublkctl show 5 | grep -qx 'log: *b\\x09c'
	# one that hangs is ended with all it started
	printf '#!/bin/sh\necho a\nexec sleep 54321\n' >"$fake"
	in_time 15000 shows 5 '.log == null and .server.pid != null'
	wait_for no_sleeper
	printf '#!/bin/sh\nexit 1\n' >"$fake"
	shows 5 '.log == null'
	ublkctl del 5
}

@test "add --affinity: the threads run there, it is shown and recorded" {
	local path
	for path in $(paths); do
		add_on "$path" -t null -n 2 -q 2 --affinity 1=0:0=1,1
		[ "$(cpus_of 2 0)" = 1 ]
		[ "$(cpus_of 2 1)" = 0 ]
		[ "$(jq -r .affinity /run/ublkctl/2.json)" = 0=1:1=0 ]
		[ "$(ublkctl list 2 --noheadings --raw -o AFFINITY)" = 0=1:1=0 ]
		shows 2 '.affinity == "0=1:1=0" and [.queue_map[].affinity] == ["1", "0"] and [.io_threads[].cpus] == ["1", "0"]'
		dd if=/dev/ublkb2 of=/dev/null bs=1M count=4 iflag=direct
		ublkctl del 2
		# one queue of two: the other one is left to the driver
		add_on "$path" -t null -n 2 -q 2 --affinity 0=0-1
		[ "$(cpus_of 2 0)" = 0-1 ]
		[ "$(cpus_of 2 1)" = "$(cat /sys/block/ublkb2/mq/1/cpu_list)" ]
		ublkctl del 2
	done
	nothing_left
}

@test "add --affinity: refused before anything is made" {
	refused 2 "not QUEUE=CPUS" -t null -q 2 --affinity 0
	refused 2 "not QUEUE=CPUS" -t null -q 2 --affinity 0=1-
	refused 2 "queue 2: there are 2, from 0 to 1" -t null -q 2 --affinity 2=0
	refused 2 "queue 0 is there twice" -t null -q 2 --affinity 0=0:0=1
	refused 1 "none of the CPUs 64-65 is online (0-1 are)" -t null -q 2 --affinity 0=64-65
	nothing_left
}

@test "set-affinity: threads of the queues move, the others stay" {
	ublkctl add -t null -q 2
	local first second
	first=$(cpus_of 0 0) second=$(cpus_of 0 1)
	ublkctl set-affinity 0 1=0,1
	[ "$(cpus_of 0 0)" = "$first" ]
	[ "$(cpus_of 0 1)" = 0-1 ]
	ublkctl set-affinity /dev/ublkb0 1="$second" 0="$second"
	[ "$(cpus_of 0 0)" = "$second" ]
	[ "$(cpus_of 0 1)" = "$second" ]
	shows 0 ".affinity == \"0=$second:1=$second\""
	# nothing but the I/O threads was touched
	[ "$(taskset -pc "$(server_pid 0)" | sed 's/.*: //; s/^0,1$/0-1/')" = 0-1 ]
	dd if=/dev/ublkb0 of=/dev/null bs=1M count=4 iflag=direct
	ublkctl del 0
	nothing_left
}

@test "set-affinity: a thread of several queues gets the CPUs of all, each thread of a queue moves" {
	needs_batch
	ublkctl add -t null -b -n 1 -q 2 --threads 1
	ublkctl set-affinity 1 0=0 1=0
	[ "$(cpus_of 1 0)" = 0 ]
	ublkctl set-affinity 1 0=1
	[ "$(cpus_of 1 0)" = 0-1 ]
	ublkctl del 1
	ublkctl add -t null -b -n 1 -q 2 --threads 4
	ublkctl set-affinity 1 1=0
	[ "$(cpus_of 1 1)" = 0 ]
	[ "$(cpus_of 1 3)" = 0 ]
	ublkctl set-affinity 1 1=1
	[ "$(cpus_of 1 1)" = 1 ]
	[ "$(cpus_of 1 3)" = 1 ]
	ublkctl del 1
	nothing_left
}

@test "set-affinity: the next server has it too, after recover, start and restart" {
	local pid
	ublkctl add -t null -q 2 -r queue --affinity 0=0
	ublkctl set-affinity 0 0=1 1=1
	pid=$(server_pid 0)
	kill -9 "$pid"
	wait_for state_is 0 quiesced
	ublkctl recover 0
	[ "$(server_pid 0)" != "$pid" ]
	[ "$(cpus_of 0 0) $(cpus_of 0 1)" = "1 1" ]
	# Linux 6.12 keeps the threads of the last server in mind: no other one can serve after a stop
	if has_zero_copy; then
		ublkctl stop 0
		ublkctl start 0
		[ "$(cpus_of 0 0) $(cpus_of 0 1)" = "1 1" ]
	fi
	if ublkctl list 0 --json | jq -e '.devices[0].flags | index("UBLK_F_QUIESCE")'; then
		ublkctl restart 0
		[ "$(cpus_of 0 0) $(cpus_of 0 1)" = "1 1" ]
	fi
	shows 0 '.affinity == "0=1:1=1"'
	ublkctl del 0
	nothing_left
}

@test "set-affinity: what is refused changes nothing" {
	local before
	ublkctl add -t null -q 2 --affinity 0=0
	before=$(cat /run/ublkctl/0.json; cpus_of 0 0; cpus_of 0 1)
	for words in "2=0" "0=0 9=1" "0" "0=" "0=1, 1=0" "0=1 0=0" "0=1 x=1"; do
		# shellcheck disable=SC2086 # words
		run_split ublkctl set-affinity 0 $words
		[ "$status" -eq 2 ]
		[ -z "$output" ]
		[[ $err != *$'\n'* ]]
	done
	run_split ublkctl set-affinity 0 0=1 1=70
	[ "$status" -eq 1 ]
	[ "$err" = "ublkctl: set-affinity: queue 1: none of the CPUs 70 is online (0-1 are)" ]
	run_split ublkctl set-affinity 7 0=0
	[ "$status" -eq 4 ]
	run_split ublkctl set-affinity 0
	[ "$status" -eq 2 ]
	run_split setpriv --reuid 1000 --regid 1000 --clear-groups "$PWD/${BUILD:-build}/ublkctl" set-affinity 0 0=1
	[ "$status" -eq 6 ]
	# one that is there, but off
	if echo 0 >/sys/devices/system/cpu/cpu1/online; then
		run_split ublkctl set-affinity 0 1=1
		echo 1 >/sys/devices/system/cpu/cpu1/online
		[ "$status" -eq 1 ]
		[[ $err == *"queue 1: none of the CPUs 1 is online (0 are)" ]]
	fi
	[ "$before" = "$(cat /run/ublkctl/0.json; cpus_of 0 0; cpus_of 0 1)" ]
	# without its record nobody knows whose threads they are
	mv /run/ublkctl/0.json "$BATS_TEST_TMPDIR"
	run_split ublkctl set-affinity 0 0=1
	[ "$status" -eq 1 ]
	[[ $err == *"no record"* ]]
	mv "$BATS_TEST_TMPDIR/0.json" /run/ublkctl
	ublkctl del 0
	nothing_left
}
