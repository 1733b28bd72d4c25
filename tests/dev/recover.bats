#!/usr/bin/env bats
# A server that dies, or hands its device over, under load: what the client sees, what is in the backing.
# `make check` runs few rounds on each shape, `make check-full` twenty.
#
# shellcheck disable=SC2154 # set by bats and common.bash

load common

setup() {
	cd "$BATS_TEST_DIRNAME/../.." || return 1
	img=/dev/shm/backing
	rounds=2
	if full; then rounds=20; fi
	# a block for each write of the longest load: fio writes each once
	size=$((rounds * 16))M
	truncate -s "$size" "$img"
}

teardown() {
	[ -z "${load_pid:-}" ] || kill "$load_pid" 2>/dev/null
	if ! nothing_left 2>/dev/null; then
		umount -A /mnt 2>/dev/null
		ublkctl del --all --force >/dev/null 2>&1
	fi
	rm -f "$img"
}

has_quiesce() {
	linux_is 6.16
}

has_fail_io() {
	linux_is 6.13
}

needs_quiesce() {
	has_quiesce || skip "handing over needs UBLK_F_QUIESCE, Linux 6.16; this is $(uname -r)"
}

# Random writes to a device, at most 16 at a time and some 1,500 a second, so that some are left for what
# comes; then everything that was acknowledged is read back and compared (not on a null device). It ends
# by itself; its report is in $report.
start_load() { # TARGET WRITES [FIO-OPTION]...
	local verify=(--verify=crc32c)
	[ "$1" = file ] || verify=()
	report=$BATS_TEST_TMPDIR/fio.json
	fio --name=load --filename="$device" --rw=randwrite --bs=4k --iodepth=16 --ioengine=io_uring \
		--direct=1 --size="$size" --number_ios="$2" \
		--thinktime=10000 --thinktime_blocks=16 \
		--output-format=json --output="$report" \
		"${verify[@]}" "${@:3}" >/dev/null 2>&1 3>&- &
	load_pid=$!
}

end_load() {
	local status=0
	wait "$load_pid" || status=$?
	load_pid=''
	return "$status"
}

# Of a field of the report; fio says other things in front of it.
load_says() { # JQ-FILTER
	jq "$1" <(sed -n '/^{/,$p' "$report")
}

load_errors() {
	load_says '.jobs[0] | .total_err // .error'
}

# What the device had at its end is what the backing has without it. Deletes device 0.
same_as_backing() {
	dd if="$device" of="$BATS_TEST_TMPDIR/image" bs=1M iflag=direct status=none
	ublkctl del 0
	cmp "$BATS_TEST_TMPDIR/image" "$img"
	rm "$BATS_TEST_TMPDIR/image"
}

delete_target() { # TARGET
	if [ "$1" = file ]; then same_as_backing; else ublkctl del 0; fi
}

writes_done() { # DEVICE
	local _ writes
	read -r _ _ _ _ writes _ <"/sys/block/${1#/dev/}/stat"
	echo "$writes"
}

# Until the device has answered so many more writes: a kill is under load, not before or after it.
wait_writes() { # DEVICE MORE
	local goal i
	goal=$(($(writes_done "$1") + $2))
	for ((i = 0; i < 600; i++)); do
		if [ "$(writes_done "$1")" -ge "$goal" ]; then return 0; fi
		kill -0 "$load_pid" || return 1
		sleep 0.05
	done
	return 1
}

kill_server() { # ID
	local pid
	pid=$(server_pid "$1")
	kill -KILL "$pid"
	wait_for gone "$pid"
}

add_target() { # PATH TARGET WORD...
	local words=(-t null -s "$size")
	[ "$2" = null ] || words=(-t file -f "$img")
	add_on "$1" "${words[@]}" "${@:3}"
}

is_open() { # DEVICE
	fuser -s "$1"
}

shapes() {
	local path target
	for path in $(paths); do
		for target in file null; do echo "$path $target"; done
	done
}

kill_rounds() { # PATH TARGET
	local i
	for ((i = 0; i < rounds; i++)); do
		wait_writes "$device" 300
		kill_server 0
		ublkctl recover 0
		state_is 0 live
	done
}

@test "kill -9 under load, reissue: the client sees nothing of it and the data is right" {
	local path target
	while read -r path target; do
		echo "shape: $path $target"
		device=$(add_target "$path" "$target" -r reissue)
		start_load "$target" $((rounds * 3000))
		kill_rounds "$path" "$target"
		end_load
		[ "$(load_errors)" -eq 0 ]
		delete_target "$target"
	done < <(shapes)
}

@test "kill -9 under load, queue: at most what the dead server had fails, the rest is right" {
	local path target errors
	while read -r path target; do
		echo "shape: $path $target"
		device=$(add_target "$path" "$target" -r queue)
		start_load "$target" $((rounds * 3000)) --continue_on_error=write
		kill_rounds "$path" "$target"
		end_load || true
		errors=$(load_errors)
		echo "errors: $errors"
		[ "$errors" -le $((rounds * 16)) ]
		# 84: a block that was acknowledged had other data
		[ "$(load_says .jobs[0].error)" -ne 84 ]
		delete_target "$target"
	done < <(shapes)
}

@test "kill -9, fail-io: I/O fails while no server is there, and only then" {
	local path target
	while read -r path target; do
		echo "shape: $path $target"
		run_split add_target "$path" "$target" -r fail-io
		if ! has_fail_io; then
			[ "$status" -eq 3 ]
			[[ $err == *UBLK_F_USER_RECOVERY_FAIL_IO* ]]
			continue
		fi
		device=$output
		start_load "$target" 800
		end_load
		[ "$(load_errors)" -eq 0 ]
		kill_server 0
		wait_for state_is 0 fail-io
		run dd if="$device" of=/dev/null bs=4k count=1 iflag=direct
		[[ $status -ne 0 && $output == *"error"* ]]
		ublkctl recover 0
		start_load "$target" 800
		end_load
		[ "$(load_errors)" -eq 0 ]
		ublkctl del 0
	done < <(shapes)
}

# One record after the other, each in a block of its own; prints the numbers of those that were taken.
write_records() { # DEVICE COUNT
	local n
	for ((n = 0; n < $2; n++)); do
		if yes "record $n" | dd of="$1" bs=4k count=1 seek="$n" iflag=fullblock oflag=direct status=none 2>/dev/null; then
			echo $n
		fi
		# so that there are some left when the server dies, on a fast machine too
		sleep 0.03
	done
}

@test "kill -9 while writes go on, fail-io: errors meanwhile, what was acknowledged is in the backing" {
	has_fail_io || skip "fail-io needs Linux 6.13, this is $(uname -r)"
	local path n i
	for path in $(paths); do
		device=$(add_target "$path" file -r fail-io)
		write_records "$device" $((rounds * 40)) >"$BATS_TEST_TMPDIR/taken" 3>&- &
		load_pid=$!
		for ((i = 0; i < rounds; i++)); do
			wait_writes "$device" 8
			kill_server 0
			wait_for state_is 0 fail-io
			ublkctl recover 0
		done
		wait "$load_pid"
		load_pid=''
		ublkctl del 0
		n=$(wc -l <"$BATS_TEST_TMPDIR/taken")
		echo "taken: $n"
		# some before, some after, some not
		[ "$n" -ge $((rounds * 8)) ]
		[ "$n" -lt $((rounds * 40)) ]
		while read -r n; do
			cmp -n 4096 <(yes "record $n" | head -c 4096) <(dd if="$img" bs=4k skip="$n" count=1 status=none)
		done <"$BATS_TEST_TMPDIR/taken"
	done
}

@test "restart under load: no error on either path; the longest wait of a request is printed" {
	needs_quiesce
	local path target i before
	while read -r path target; do
		echo "shape: $path $target"
		device=$(add_target "$path" "$target" -r queue)
		start_load "$target" $((rounds * 3000))
		for ((i = 0; i < rounds; i++)); do
			wait_writes "$device" 300
			before=$(server_pid 0)
			[ "$(ublkctl restart 0)" = "$device" ]
			[ "$(server_pid 0)" -ne "$before" ]
			wait_for gone "$before"
		done
		end_load
		[ "$(load_errors)" -eq 0 ]
		echo "# $path $target: longest wait $(load_says '.jobs[0].write.clat_ns.max / 1e6 | floor') ms" >&3
		ublkctl del 0
	done < <(shapes)
}

# Handed over where the driver can do it, killed and recovered everywhere.
modes_go_on() { # PATH MODE...
	local mode
	for mode in "${@:2}"; do
		echo "shape: $mode $1"
		device=$(add_target "$1" file -r reissue --data-mode "$mode")
		ublkctl list 0 --json | jq '.devices[0] | del(.pid)' >"$BATS_TEST_TMPDIR/before"
		start_load file 2000
		if has_quiesce; then
			wait_writes "$device" 100
			ublkctl restart 0
		fi
		wait_writes "$device" 100
		kill_server 0
		ublkctl recover 0
		end_load
		[ "$(load_errors)" -eq 0 ]
		ublkctl list 0 --json | jq '.devices[0] | del(.pid)' >"$BATS_TEST_TMPDIR/after"
		diff "$BATS_TEST_TMPDIR/before" "$BATS_TEST_TMPDIR/after"
		same_as_backing
	done
}

@test "recover and restart, copying modes on the per-I/O path: the same mode goes on, the data is right" {
	modes_go_on per-io copy get-data user-copy
}

@test "recover and restart, zero-copy modes on the per-I/O path" {
	needs_mode auto-zc per-io
	modes_go_on per-io zero-copy auto-zc auto-zc-fallback
}

@test "recover and restart, every mode on the batch path" {
	needs_batch
	modes_go_on batch copy user-copy zero-copy auto-zc auto-zc-fallback
}

@test "quiesce: the state says so, I/O waits for recover" {
	needs_quiesce
	local path
	for path in $(paths); do
		device=$(add_target "$path" null -r queue)
		ublkctl quiesce 0
		state_is 0 quiesced
		[ "$(ublkctl list 0 --json | jq .devices[0].pid)" = null ]
		run_split ublkctl list 0
		[[ $err == *"'ublkctl recover 0'"* ]]
		dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none 3>&- &
		load_pid=$!
		sleep 0.3
		kill -0 "$load_pid"
		# once more is no error
		ublkctl quiesce 0
		ublkctl recover 0
		wait "$load_pid"
		load_pid=''
		ublkctl del 0
	done
}

@test "quiesced devices can be stopped and deleted, also with I/O that waits" {
	needs_quiesce
	local path
	for path in $(paths); do
		device=$(add_target "$path" null -r queue)
		ublkctl quiesce 0
		dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none 2>/dev/null 3>&- &
		load_pid=$!
		wait_for is_open "$device"
		run_split ublkctl del 0
		[ "$status" -eq 5 ]
		ublkctl del --force 0
		! wait "$load_pid" || false
		load_pid=''
		wait_for nothing_left
	done
}

@test "recover and restart refuse with the reason" {
	local pid
	run_split ublkctl recover 0
	[ "$status" -eq 4 ]
	[[ $err == *"no device 0"* ]]
	device=$(add_target per-io file)
	# what is well needs nothing, whatever else it could not have
	run_split ublkctl recover 0
	[ "$status" -eq 5 ]
	[[ $err == *"device 0 is live, served by process "* ]]
	for command in restart quiesce; do
		run_split ublkctl $command 0
		[ "$status" -eq 1 ]
		[ -z "$output" ]
		[[ $err == "ublkctl: $command: device 0 cannot be "*"it was added without --recovery"* ]]
	done
	kill_server 0
	wait_for state_is 0 dead
	run_split ublkctl recover 0
	[ "$status" -eq 1 ]
	[[ $err == *"without --recovery"* ]]
	ublkctl del 0
	device=$(add_target per-io file -r queue)
	run_split ublkctl recover 0
	[ "$status" -eq 5 ]
	[[ $err == *"device 0 is live, served by process $(server_pid 0)" ]]
	[ -z "$output" ]
	run_split ublkctl recover
	[ "$status" -eq 2 ]
	run_split ublkctl recover --all 0
	[ "$status" -eq 2 ]
	run_split ublkctl recover x
	[ "$status" -eq 2 ]
	state_is 0 live
	ublkctl recover --all
	state_is 0 live
}

# restart was refused with this text, and the last server goes on.
still_serves() { # PID TEXT
	[[ $err == *"$2"* && $err != *$'\n'* ]]
	[ "$(server_pid 0)" -eq "$1" ]
	state_is 0 live
	dd if=/dev/ublkb0 of=/dev/null bs=4k count=4 iflag=direct status=none
}

@test "restart that could not end well leaves the device to its server" {
	local pid
	needs_quiesce
	device=$(add_target per-io file -r queue)
	pid=$(server_pid 0)
	mount -o remount,ro /run
	run_split ublkctl restart 0
	mount -o remount,rw /run
	[ "$status" -eq 1 ]
	still_serves "$pid" "cannot write the record of device 0: Read-only file system"
	cat /dev/zero >/run/full 2>/dev/null || true
	run_split ublkctl restart 0
	rm /run/full
	[ "$status" -eq 1 ]
	still_serves "$pid" "cannot write the record of device 0: No space left on device"
	mv /dev/ublkc0 /dev/away
	run_split ublkctl restart 0
	mv /dev/away /dev/ublkc0
	[ "$status" -eq 1 ]
	still_serves "$pid" "/dev/ublkc0 is missing"
	ublkctl restart 0
	[ "$(server_pid 0)" -ne "$pid" ]
}

@test "recover on an older driver: restart is refused by name, kill and recover work" {
	! has_quiesce || skip "this driver has UBLK_F_QUIESCE"
	device=$(add_target per-io file -r queue)
	run_split ublkctl restart 0
	[ "$status" -eq 3 ]
	[[ $err == *UBLK_F_QUIESCE*"Linux 6.16"* ]]
	state_is 0 live
}

@test "recover wants the same backing, and a record that only root could write" {
	device=$(add_target per-io file -r queue)
	kill_server 0
	wait_for state_is 0 quiesced
	mv "$img" "$img.moved"
	run_split ublkctl recover 0
	[ "$status" -eq 1 ]
	[[ $err == *"$img"*"No such file"* ]]
	truncate -s "$size" "$img"
	run_split ublkctl recover 0
	[ "$status" -eq 1 ]
	[[ $err == *"another file is there" ]]
	truncate -s 1M "$img.moved"
	mv "$img.moved" "$img"
	run_split ublkctl recover 0
	[ "$status" -eq 1 ]
	[[ $err == *"$img has 1048576 bytes"* ]]
	truncate -s "$size" "$img"
	chmod 666 /run/ublkctl/0.json
	run_split ublkctl recover 0
	[ "$status" -eq 6 ]
	[[ $err == *"not to be trusted"* ]]
	chmod 644 /run/ublkctl/0.json
	cp /run/ublkctl/0.json "$BATS_TEST_TMPDIR/record"
	for damage in '' '{}' '{"schema": 2}' "$(head -c 200000 /dev/zero | tr '\0' x)"; do
		printf '%s' "$damage" >/run/ublkctl/0.json
		run_split ublkctl recover 0
		[ "$status" -eq 1 ]
		[[ $err == *"the record of device 0 is damaged, or another version's"* ]]
		run_split ublkctl stop 0
		[ "$status" -eq 1 ]
		[[ $err == *"no record that can be believed"* ]]
	done
	cp "$BATS_TEST_TMPDIR/record" /run/ublkctl/0.json
	mv /run/ublkctl/0.json /run/ublkctl/kept
	run_split ublkctl recover 0
	[ "$status" -eq 1 ]
	[[ $err == *"another tool's"* ]]
	mv /run/ublkctl/kept /run/ublkctl/0.json
	state_is 0 quiesced
	[ "$(ublkctl recover 0)" = "$device" ]
	state_is 0 live
	dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none
}

# The file target's lock keeps the second out, on a null device only the driver does.
@test "two recovers at once: one serves, the other says why not" {
	local path target a b first second
	while read -r path target; do
		echo "shape: $path $target"
		device=$(add_target "$path" "$target" -r reissue)
		kill_server 0
		wait_for state_is 0 quiesced
		ublkctl recover 0 --timeout 3 >"$BATS_TEST_TMPDIR/1" 2>&1 3>&- &
		first=$!
		ublkctl recover 0 --timeout 3 >"$BATS_TEST_TMPDIR/2" 2>&1 3>&- &
		second=$!
		a=0 b=0
		wait "$first" || a=$?
		wait "$second" || b=$?
		cat "$BATS_TEST_TMPDIR/1" "$BATS_TEST_TMPDIR/2"
		[ $((a == 0)) -ne $((b == 0)) ]
		[ "$(cat "$BATS_TEST_TMPDIR"/[12] | wc -l)" -eq 2 ]
		state_is 0 live
		dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none
		[ "$(pgrep -c -x ublkctl)" -le 2 ]
		ublkctl del 0
	done < <(shapes)
}

@test "restart --all and recover --all: all that can, others untouched" {
	needs_quiesce
	local pids after
	ublkctl add -t null -r queue
	ublkctl add -t null
	ublkctl add -t null -r reissue
	# one that was quiesced on purpose stays so
	ublkctl add -t null -r queue
	ublkctl quiesce 3
	pids=$(ublkctl list --json | jq -c '[.devices[].pid]')
	[ "$(ublkctl restart --all)" = "/dev/ublkb0"$'\n'"/dev/ublkb2" ]
	after=$(ublkctl list --json | jq -c '[.devices[].pid]')
	[ "$(jq '.[1]' <<<"$pids")" = "$(jq '.[1]' <<<"$after")" ]
	[ "$(jq '.[0]' <<<"$pids")" != "$(jq '.[0]' <<<"$after")" ]
	[ "$(jq '.[2]' <<<"$pids")" != "$(jq '.[2]' <<<"$after")" ]
	state_is 3 quiesced
	ublkctl del 3
	kill_server 0
	kill_server 2
	[ "$(ublkctl recover --all)" = "/dev/ublkb0"$'\n'"/dev/ublkb2" ]
	[ "$(ublkctl list --json | jq -c '[.devices[].state]')" = '["live","live","live"]' ]
	[ -z "$(ublkctl recover --all)" ]
}

@test "recover --foreground serves until it is told to end" {
	device=$(add_target per-io file -r queue)
	kill_server 0
	wait_for state_is 0 quiesced
	"$PWD/${BUILD:-build}/ublkctl" recover 0 --foreground >"$BATS_TEST_TMPDIR/out" 3>&- &
	pid=$!
	wait_for state_is 0 live
	[ "$(server_pid 0)" -eq "$pid" ]
	kill -TERM "$pid"
	wait "$pid"
	wait_for nothing_left
}
