#!/usr/bin/env bats
# Stopped and started, grown, killed at every moment, short of memory, in numbers.
#
# shellcheck disable=SC2154 # set by bats and common.bash

load common
load backing

setup() {
	cd "$BATS_TEST_DIRNAME/../.." || return 1
	img=/dev/shm/backing
	truncate -s 64M "$img"
}

teardown() {
	local pid
	if ! nothing_left 2>/dev/null; then
		for pid in $(pgrep ublkctl); do kill -CONT "$pid" 2>/dev/null; done
		umount -A /mnt 2>/dev/null
		ublkctl del --all --force >/dev/null 2>&1
	fi
	rm -f "$img"
	! mountpoint -q /tmp/fill || umount /tmp/fill
}

# The test build, which dies at STEP as by kill -9; what run_split has.
dies_at() { # STEP WORD...
	run_split env "UBLKCTL_FAULT=$1" "$PWD/${BUILD:-build}/ublkctl-faults" "${@:2}"
}

size_of() { # DEVICE
	blockdev --getsize64 "$1"
}

@test "stop keeps id and record, start brings the disk back with its data" {
	local path
	for path in $(paths); do
		device=$(add_on "$path" -t file -f "$img")
		mkfs.ext4 -q "$device"
		mount "$device" /mnt
		echo kept >/mnt/file
		run_split ublkctl stop 0
		[ "$status" -eq 5 ]
		[[ $err == "ublkctl: stop: device 0 is busy: mounted at /mnt" ]]
		state_is 0 live
		umount /mnt
		ublkctl stop 0
		[ ! -e "$device" ]
		[ ! -e /sys/block/ublkb0 ]
		[ -e /run/ublkctl/0.json ]
		wait_for no_server
		run_split ublkctl list --json
		jq -e '.devices[0] | .state == "dead" and .pid == null and .size == 67108864' <<<"$output"
		[[ $err == *"'ublkctl start 0'"* ]]
		[ -z "$(ublkctl del --dead --dry-run)" ]
		# once more changes nothing
		ublkctl stop 0
		run_split ublkctl add -t null --id 0
		[ "$status" -eq 5 ]
		[ "$(ublkctl start 0)" = "$device" ]
		state_is 0 live
		[ "$(ublkctl list 0 --json | jq .devices[0].batch)" = "$([ "$path" = batch ] && echo true || echo false)" ]
		mount "$device" /mnt
		[ "$(cat /mnt/file)" = kept ]
		umount /mnt
		run_split ublkctl start 0
		[ "$status" -eq 5 ]
		ublkctl stop 0
		ublkctl del 0
		nothing_left
	done
}

no_server() {
	! pgrep -x ublkctl >/dev/null
}

@test "stop --safe: where the driver does it, else refused by name" {
	device=$(ublkctl add -t null)
	hold_open "$device" 60
	run_split ublkctl stop --safe 0
	if has_batch; then
		[ "$status" -eq 5 ]
	else
		[ "$status" -eq 3 ]
		[[ $err == *UBLK_F_SAFE_STOP_DEV* ]]
	fi
	state_is 0 live
	kill "$opener"
	wait "$opener" || true
	has_batch || return 0
	ublkctl stop --safe 0
	state_is 0 dead
}

@test "del --dead: what lost its server, and neither live nor stopped devices" {
	ublkctl add -t null
	ublkctl add -t null
	ublkctl add -t null
	kill -KILL "$(server_pid 1)"
	wait_for state_is 1 dead
	ublkctl stop 2
	[ "$(ublkctl del --dead --dry-run)" = /dev/ublkb1 ]
	state_is 1 dead
	ublkctl del --dead
	[ "$(ublkctl list --json 2>/dev/null | jq -c '[.devices[].id]')" = "[0,2]" ]
	state_is 0 live
	for words in "--dead 0" "--dead --all" "--dry-run 0"; do
		# shellcheck disable=SC2086 # words
		run_split ublkctl del $words
		[ "$status" -eq 2 ]
	done
}

@test "start gives a device without recovery a new disk after its server died" {
	device=$(ublkctl add -t file -f "$img")
	kill -KILL "$(server_pid 0)"
	wait_for state_is 0 dead
	[ "$(ublkctl start 0)" = "$device" ]
	dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none
}

@test "start of a device whose dead disk is mounted still: busy by name, then it works" {
	device=$(ublkctl add -t file -f "$img")
	mkfs.ext4 -q "$device"
	mount "$device" /mnt
	echo kept >/mnt/file
	sync -f /mnt/file
	kill -KILL "$(server_pid 0)"
	wait_for state_is 0 dead
	run_split ublkctl start 0
	[ "$status" -eq 5 ]
	[ "$err" = "ublkctl: start: device 0 is busy: mounted at /mnt" ]
	umount /mnt
	ublkctl start 0
	mount "$device" /mnt
	[ "$(</mnt/file)" = kept ]
	umount /mnt
	ublkctl del 0
}

@test "resize while mounted: ext4 and xfs grow; refused by name where the driver cannot" {
	local fs
	for fs in ext4 xfs; do
		truncate -s 320M "$img"
		device=$(ublkctl add -t file -f "$img")
		mkfs."$fs" -q "$device"
		mount "$device" /mnt
		before=$(df --output=size -B 1M /mnt | tail -n 1)
		run_split ublkctl resize 0 400M
		if ! has_zero_copy; then
			[ "$status" -eq 3 ]
			[[ $err == *"UBLK_F_UPDATE_SIZE, Linux 6.16"* ]]
			[ "$(stat -c %s "$img")" -eq $((320 << 20)) ]
		else
			[ "$status" -eq 0 ]
			[ "$(size_of "$device")" -eq $((400 << 20)) ]
			[ "$(stat -c %s "$img")" -eq $((400 << 20)) ]
			[ "$(ublkctl list 0 --json | jq .devices[0].size)" -eq $((400 << 20)) ]
			if [ $fs = ext4 ]; then resize2fs "$device"; else xfs_growfs /mnt; fi
			[ "$(df --output=size -B 1M /mnt | tail -n 1)" -ge $((before + 60)) ]
		fi
		umount /mnt
		ublkctl del 0
		truncate -s 0 "$img"
	done
}

# A partition table with one partition, from sector 2048 on.
put_partition() { # DEVICE SECTORS
	local size
	size=$(printf '\\x%02x' $(($2 & 255)) $(($2 >> 8 & 255)) $(($2 >> 16 & 255)) $(($2 >> 24)))
	# shellcheck disable=SC2059 # bytes
	printf "\0\0\0\0\x83\0\0\0\0\x08\0\0$size" | dd of="$1" bs=1 seek=446 conv=notrunc status=none
	printf '\x55\xaa' | dd of="$1" bs=1 seek=510 conv=notrunc,fsync status=none
	blockdev --rereadpt "$1"
}

@test "resize with a mounted partition: it stays as it is, and can grow into the new space" {
	has_zero_copy || skip "resize needs Linux 6.16"
	device=$(ublkctl add -t file -f "$img")
	put_partition "$device" 65536
	mkfs.ext4 -q "${device}p1"
	mount "${device}p1" /mnt
	echo kept >/mnt/file
	run_split ublkctl resize 0 32M --force
	[ "$status" -eq 5 ]
	[[ $err == *"mounted at /mnt"* ]]
	ublkctl resize 0 128M
	[ "$(size_of "$device")" -eq $((128 << 20)) ]
	[ "$(size_of "${device}p1")" -eq $((32 << 20)) ]
	[ "$(column 0 SIZE)" = 128M ]
	ublkctl list 0 --json | jq -e '.devices[0].size == 134217728'
	[ "$(</mnt/file)" = kept ]
	umount /mnt
	put_partition "$device" $((262144 - 2048))
	[ "$(size_of "${device}p1")" -eq $((127 << 20)) ]
	e2fsck -fp "${device}p1"
	resize2fs "${device}p1"
	mount "${device}p1" /mnt
	[ "$(</mnt/file)" = kept ]
	head -c 100M /dev/urandom >/mnt/much
	umount /mnt
	ublkctl del 0
}

@test "resize down: only with --force, never in use; the backing keeps its size" {
	has_zero_copy || skip "resize needs Linux 6.16"
	device=$(ublkctl add -t file -f "$img" -r queue)
	run_split ublkctl resize 0 32M
	[ "$status" -eq 1 ]
	[[ $err == *"needs --force"* ]]
	hold_open "$device" 60
	run_split ublkctl resize 0 32M --force
	[ "$status" -eq 5 ]
	[[ $err == *"open by process $opener"* ]]
	[ "$(size_of "$device")" -eq $((64 << 20)) ]
	kill "$opener"
	wait "$opener" || true
	ublkctl resize 0 32M --force
	[ "$(size_of "$device")" -eq $((32 << 20)) ]
	[ "$(stat -c %s "$img")" -eq $((64 << 20)) ]
	# the next server has it too
	ublkctl restart 0
	[ "$(size_of "$device")" -eq $((32 << 20)) ]
	ublkctl stop 0
	ublkctl start 0
	[ "$(size_of "$device")" -eq $((32 << 20)) ]
}

@test "resize: what is wrong changes nothing" {
	has_zero_copy || skip "resize needs Linux 6.16"
	local words
	device=$(ublkctl add -t file -f "$img" --block-size 4096)
	for words in "0" "0 10x" "0 -1" "0 0" "x 10M" "0 4608" "0 1M 2M"; do
		# shellcheck disable=SC2086 # words
		run_split ublkctl resize $words
		[ "$status" -eq 2 ]
		[ "$(wc -l <<<"$err")" -eq 1 ]
	done
	run_split ublkctl resize 7 10M
	[ "$status" -eq 4 ]
	[ "$(size_of "$device")" -eq $((64 << 20)) ]
	[ "$(stat -c %s "$img")" -eq $((64 << 20)) ]
	ublkctl del 0
	disk=$(null_blk_make nullb-resize $((16 << 20)))
	ublkctl add -t file -f "$disk"
	run_split ublkctl resize 0 17M
	[ "$status" -eq 1 ]
	[[ $err == *"$disk has 16777216 bytes"* ]]
	ublkctl del 0
	null_blk_drop nullb-resize
}

@test "kill -9 of the server at every step of add: it says so and leaves a clean machine" {
	local step recovery path
	for path in "" $(paths | sed -n 's/^batch$/-b/p'); do
		for recovery in off reissue; do
			for step in 0 1 2 3 4 5 6 7 8; do
				echo "$path $recovery step $step"
				# shellcheck disable=SC2086 # a word or none
				dies_at "serve:$step" add -t file -f "$img" -r "$recovery" $path --timeout 10
				[ "$status" -eq 1 ]
				[ "$err" = "ublkctl: add: the server died before it was ready" ]
				[ -z "$(ublkctl list --raw --noheadings)" ]
				wait_for nothing_left
			done
		done
	done
	# with all steps done it works
	dies_at serve:9 add -t null
	[ "$status" -eq 0 ]
	ublkctl del 0
}

@test "kill -9 of the server at every step of recover: the next recover works" {
	local step
	device=$(ublkctl add -t file -f "$img" -r reissue)
	for step in 0 1 2 3 4 5 6; do
		kill -KILL "$(server_pid 0)"
		dies_at "serve:$step" recover 0 --timeout 10
		[ "$status" -eq 1 ]
		[ "$err" = "ublkctl: recover: the server died before it was ready" ]
		ublkctl recover 0
		state_is 0 live
		dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none
	done
}

@test "kill -9 of the server at every step of start: the next start works" {
	local step
	device=$(ublkctl add -t file -f "$img")
	for step in 0 1 2 3 4 5 6; do
		ublkctl stop 0
		dies_at "serve:$step" start 0 --timeout 10
		[ "$status" -eq 1 ]
		[[ $err == "ublkctl: start: the server died before it was ready"* ]]
		# an older driver had to make the device anew, and that is what died
		if [ ! -e /run/ublkctl/0.json ]; then
			ublkctl del 0 --ignore-missing
			ublkctl add -t file -f "$img" >/dev/null
			continue
		fi
		ublkctl start 0
		state_is 0 live
		dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none
	done
}

@test "kill -9 of a server, del, add: the next server gets the backing" {
	local i
	for i in 1 2 3 4 5; do
		ublkctl add -t file -f "$img" -q 4
		kill -KILL "$(server_pid 0)"
		ublkctl del 0
	done
	# one that stays keeps it
	ublkctl add -t file -f "$img"
	refused 5 "$img is attached already" -t file -f "$img"
	ublkctl del 0
}

@test "kill -9 of the process that stops and deletes, at every step: a second del or stop does it" {
	local step
	for step in 0 1 2 3 4; do
		ublkctl add -t file -f "$img"
		dies_at "stop:$step" del 0
		[ "$status" -eq 1 ]
		[[ $err == *"the helper process died"* ]]
		ublkctl del 0 --ignore-missing
		wait_for nothing_left
	done
	for step in 0 1 2; do
		device=$(ublkctl add -t file -f "$img")
		dies_at "stop:$step" stop 0
		[ "$status" -eq 1 ]
		ublkctl stop 0
		[ ! -e "$device" ]
		[ -z "$(ublkctl del --dead --dry-run)" ]
		[ "$(ublkctl start 0)" = "$device" ]
		ublkctl del 0
		wait_for nothing_left
	done
}

@test "kill -9 of del and of recover in the foreground: what they began is done, or a second one does it" {
	local i
	for i in 1 5; do
		device=$(ublkctl add -t file -f "$img" -r reissue)
		"$PWD/${BUILD:-build}/ublkctl" del 0 2>/dev/null 3>&- &
		pid=$!
		sleep "0.0$i"
		kill -KILL "$pid" || true
		wait "$pid" || true
		ublkctl del 0 --ignore-missing
		wait_for nothing_left
		device=$(ublkctl add -t file -f "$img" -r reissue)
		kill -KILL "$(server_pid 0)"
		wait_for state_is 0 quiesced
		"$PWD/${BUILD:-build}/ublkctl" recover 0 >/dev/null 2>&1 3>&- &
		pid=$!
		sleep "0.0$i"
		kill -KILL "$pid" || true
		wait "$pid" || true
		# by the first one's server, or by a second
		state_is 0 live || ublkctl recover 0 || wait_for state_is 0 live
		dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none
		ublkctl del 0
	done
}

@test "SIGTERM with dirty pages below a mounted file system: no task hangs, what was synced is there" {
	local pid i
	device=$(ublkctl add -t file -f "$img")
	ublkctl add -t null
	mkfs.ext4 -q "$device"
	mount "$device" /mnt
	head -c 1000000 /dev/urandom >/mnt/synced
	sync
	sum=$(md5sum </mnt/synced)
	head -c 20000000 /dev/urandom >/mnt/dirty
	pid=$(server_pid 0)
	kill -TERM "$pid"
	for ((i = 0; i < 100; i++)); do
		if gone "$pid"; then break; fi
		sleep 0.1
	done
	kill -KILL "$pid" 2>/dev/null || true
	wait_for gone "$pid"
	ublkctl del 1
	umount /mnt || umount -l /mnt
	# uninterruptible for longer than a moment
	for ((i = 0; i < 50; i++)); do
		if ! grep -l '^State:	D' /proc/[0-9]*/status 2>/dev/null; then break; fi
		sleep 0.1
	done
	[ "$i" -lt 50 ]
	ublkctl del --all --force
	wait_for nothing_left
	modprobe loop
	mount -o loop "$img" /mnt
	[ "$(md5sum </mnt/synced)" = "$sum" ]
	umount /mnt
}

@test "memory: a server is no victim of the OOM killer and has its memory locked" {
	local pid
	for path in $(paths); do
		add_on "$path" -t null
		pid=$(server_pid 0)
		[ "$(cat "/proc/$pid/oom_score_adj")" = -1000 ]
		if ! is_sanitized; then
			[ "$(sed -n 's/^VmLck:[\t ]*\([0-9]*\) kB/\1/p' "/proc/$pid/status")" -gt 1000 ]
		fi
		ublkctl del 0
		# buffers are reserved only, or there and locked
		add_on "$path" -t file -f "$img" -q 1 -d 64 --max-io 1M --mlock
		pid=$(server_pid 0)
		is_sanitized || [ "$(sed -n 's/^VmLck:[\t ]*\([0-9]*\) kB/\1/p' "/proc/$pid/status")" -gt 65536 ]
		ublkctl del 0
	done
}

@test "memory pressure: writeback through a file device ends while memory is short" {
	local disk free
	disk=$(null_blk_make nullb-sink $((1 << 30)) memory_backed=0 discard=0)
	for path in $(paths); do
		device=$(add_on "$path" -t file -f "$disk" --io buffered --mlock -q 1 -d 32)
		mkdir -p /tmp/fill
		mount -t tmpfs -o size=100% fill /tmp/fill
		free=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
		head -c $(((free - 250000) * 1024)) /dev/zero >/tmp/fill/full
		dd if=/dev/zero of="$device" bs=1M count=500 conv=fsync status=none
		umount /tmp/fill
		state_is 0 live
		ublkctl del 0
	done
	null_blk_drop nullb-sink
}

@test "many devices: added side by side, killed at random, recovered, deleted; nothing is left" {
	local n=24 i
	if full; then n=500; fi
	if [ "${BUILD:-build}" != build ]; then n=12; fi
	seq $n | xargs -P 4 -I{} "$PWD/${BUILD:-build}/ublkctl" add -t null -q 1 -d 16 -r queue >"$BATS_TEST_TMPDIR/added"
	[ "$(sort -u "$BATS_TEST_TMPDIR/added" | wc -l)" -eq $n ]
	for i in $(ublkctl list --raw --noheadings -o PID | shuf -n $((n / 2))); do kill -KILL "$i"; done
	wait_for all_noticed $((n / 2))
	[ "$(ublkctl recover --all | wc -l)" -eq $((n / 2)) ]
	[ "$(ublkctl list --json | jq '[.devices[] | select(.state == "live")] | length')" -eq $n ]
	ublkctl del --all
	wait_for nothing_left
}

all_noticed() { # COUNT
	[ "$(ublkctl list --state quiesced --raw --noheadings -o ID 2>/dev/null | wc -l)" -eq "$1" ]
}
