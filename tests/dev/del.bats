#!/usr/bin/env bats
# del: users first, nothing without a word, nothing left.

# shellcheck disable=SC2154 # set by common.bash
load common

# There may be no udevd: dmsetup makes its nodes itself.
export DM_DISABLE_UDEV=1

@test "del of several devices tries all, the first failure is the status" {
	ublkctl add -t null -n 1
	ublkctl add -t null -n 2
	run_split ublkctl del 1 9 /dev/ublkb2
	[ "$status" -eq 4 ]
	[ "$err" = "ublkctl: del: no device 9" ]
	nothing_left
	run_split ublkctl del 9
	[ "$status" -eq 4 ]
	ublkctl del --ignore-missing 9
}

@test "an open device is refused by name of the process, --force deletes it" {
	ublkctl add -t null -s 64M
	hold_open /dev/ublkb0 1000
	run_split ublkctl del 0
	[ "$status" -eq 5 ]
	[[ $err == *"device 0 is busy: open by process $opener (sleep)"* ]]
	state_is 0 live
	run_split ublkctl del --force 0
	[ "$status" -eq 0 ]
	[[ $err == *"device 0 was open by process $opener (sleep): its id is free once that ends"* ]]
	nothing_left
	run_split ublkctl add -t null -n 0
	[ "$status" -eq 5 ]
	kill "$opener"
	wait "$opener" || true
	ublkctl add -t null -n 0
	ublkctl del 0
	nothing_left
}

@test "swap, dm and loop on a device are named" {
	modprobe loop
	ublkctl add -t null -s 64M
	loop=$(losetup --show -f /dev/ublkb0)
	run_split ublkctl del 0
	[ "$status" -eq 5 ]
	[[ $err == *"backing of ${loop#/dev/}"* ]]
	losetup -d "$loop"
	if command -v dmsetup >/dev/null && modprobe dm_mod; then
		dmsetup create t0 --table "0 2048 linear /dev/ublkb0 0"
		run_split ublkctl del 0
		dmsetup remove t0
		[ "$status" -eq 5 ]
		[[ $err == *"held by dm-"* ]]
	fi
	ublkctl del 0
	nothing_left
}

@test "--wait for one device takes nothing from another one" {
	ublkctl add -t null
	ublkctl add -t null
	hold_open /dev/ublkb1 60
	# longer than the other one's deadline
	run_split ublkctl del --wait 4 --timeout 2 0 1
	kill "$opener"
	wait "$opener" || true
	[ "$status" -eq 5 ]
	[ "$err" = "ublkctl: del: device 1 is busy: open by process $opener (sleep)" ]
	[ "$(ublkctl list --raw --noheadings -o ID)" = 1 ]
	ublkctl del 1
}

@test "--wait waits for the user to go" {
	ublkctl add -t null
	hold_open /dev/ublkb0 2
	run_split ublkctl del 0
	[ "$status" -eq 5 ]
	ublkctl del --wait 60 0
	nothing_left
	wait "$opener"
}

@test "--no-wait returns, and the device goes by itself" {
	ublkctl add -t null
	ublkctl del --no-wait 0
	wait_for nothing_left
}

@test "kill -9 of the server: list says DEAD and what next, del removes it" {
	for path in $(paths); do
		add_on "$path" -t null
		kill -9 "$(server_pid 0)"
		wait_for state_is 0 dead
		run_split ublkctl list
		[ "$status" -eq 0 ]
		[[ $err == *"DEAD"*"ublkctl del 0"* ]]
		ublkctl list --json | jq -e '.devices[0] | .state == "dead" and .target == "null" and .pid == null and .device == null'
		[ "$(ublkctl list --state dead --noheadings --raw -o ID)" = 0 ]
		[ -z "$(ublkctl list --state live --noheadings --raw -o ID)" ]
		ublkctl del 0
		nothing_left
	done
}

@test "right after the end of its server a device is not live any more" {
	local words pid i
	for words in "" "-b" "-r queue" "-q 1 -r reissue"; do
		[ "$words" != -b ] || has_batch || continue
		for i in 1 2 3 4; do
			# shellcheck disable=SC2086 # words
			ublkctl add -t null -s 1G $words
			pid=$(server_pid 0)
			kill -KILL "$pid"
			until gone "$pid"; do :; done
			run_split ublkctl list --raw --noheadings -o STATE,SIZE,PID
			[[ $words == *-r* && $output == "quiesced 1G -" ]] || [[ $words != *-r* && $output == "dead 1G -" ]]
			[ -n "$err" ]
			ublkctl del 0
		done
	done
}

@test "kill -9 under load: del brings the machine back" {
	for path in $(paths); do
		add_on "$path" -t null
		fio --name=x --filename=/dev/ublkb0 --rw=randrw --bs=4k --iodepth=64 --ioengine=io_uring \
			--direct=1 --number_ios=1000000 >/dev/null 2>&1 3>&- &
		load=$!
		sleep 1
		kill -9 "$(server_pid 0)"
		wait "$load" || true
		wait_for state_is 0 dead
		ublkctl del 0
		nothing_left
	done
}

@test "SIGTERM to the server deletes its device, also under load" {
	for path in $(paths); do
		add_on "$path" -t null
		fio --name=x --filename=/dev/ublkb0 --rw=randread --bs=4k --iodepth=64 --ioengine=io_uring \
			--direct=1 --number_ios=1000000 >/dev/null 2>&1 3>&- &
		load=$!
		sleep 1
		kill "$(server_pid 0)"
		wait "$load" || true
		wait_for nothing_left
	done
}

@test "a stopped server blocks neither list nor other devices; del has a deadline" {
	for path in $(paths); do
		add_on "$path" -t null
		add_on "$path" -t null
		pid=$(server_pid 0)
		kill -STOP "$pid"
		dd if=/dev/ublkb0 of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null 3>&- &
		reader=$!
		sleep 0.3
		run_split ublkctl list
		[ "$status" -eq 0 ]
		[ "$(wc -l <<<"$output")" -eq 3 ]
		ublkctl del 1
		run_split ublkctl del --force --timeout 2 0
		[ "$status" -eq 7 ]
		[[ $err == *"timed out after 2 s"*"process $pid in state T"* ]]
		ublkctl list
		kill -CONT "$pid"
		wait "$reader" || true
		wait_for test ! -e /sys/class/ublk-char/ublkc0
		wait_for nothing_left
	done
}

@test "a device of another tool is listed and deleted without a record" {
	ublkctl add -t null
	mv /run/ublkctl/0.json "$BATS_TEST_TMPDIR/0.json"
	ublkctl list --json | jq -e '.devices[0] | .id == 0 and .target == "unknown" and .state == "live" and .threads == null'
	# a record of an earlier device with this id is not believed
	sed 's/"cookie":.*/"cookie":"0x0000000000000001",/' "$BATS_TEST_TMPDIR/0.json" >/run/ublkctl/0.json
	ublkctl list --json | jq -e '.devices[0].target == "unknown"'
	# nor one that others can write
	cp "$BATS_TEST_TMPDIR/0.json" /run/ublkctl/0.json
	ublkctl list --json | jq -e '.devices[0].target == "null"'
	chmod 666 /run/ublkctl/0.json
	ublkctl list --json | jq -e '.devices[0].target == "unknown"'
	ublkctl del 0
	rm -f /run/ublkctl/0.json
	nothing_left
}

@test "the id of a deleted device is free at once" {
	for _ in 1 2 3 4 5; do
		[ "$(ublkctl add -t null -n 3)" = /dev/ublkb3 ]
		ublkctl del 3
		nothing_left
	done
}

@test "adds and dels in parallel neither collide nor lose anything" {
	for i in 1 2 3 4 5 6 7 8; do
		ublkctl add -t null 3>&- >"$BATS_TEST_TMPDIR/add.$i" &
		pids+=($!)
	done
	for p in "${pids[@]}"; do wait "$p"; done
	[ "$(sort -u "$BATS_TEST_TMPDIR"/add.* | wc -l)" -eq 8 ]
	ublkctl list --json | jq -e '.devices | length == 8 and all(.state == "live" and .target == "null")'
	pids=()
	for i in 0 1 2 3 4 5 6 7 0 1 2 3; do
		ublkctl del --ignore-missing "$i" 3>&- &
		pids+=($!)
	done
	for p in "${pids[@]}"; do wait "$p"; done
	nothing_left
}

@test "dead but still mounted: busy by name of the mount point, gone after umount" {
	truncate -s 64M "$BATS_TEST_TMPDIR/img"
	mkfs.ext4 -qF "$BATS_TEST_TMPDIR/img"
	mkdir -p "$BATS_TEST_TMPDIR/m"
	ublkctl add -t file -f "$BATS_TEST_TMPDIR/img"
	mount /dev/ublkb0 "$BATS_TEST_TMPDIR/m"
	run_split ublkctl del 0
	[ "$status" -eq 5 ]
	[[ $err == *"busy: mounted at $BATS_TEST_TMPDIR/m"* ]]
	kill -9 "$(server_pid 0)"
	wait_for state_is 0 dead
	run_split ublkctl del 0
	[ "$status" -eq 5 ]
	[[ $err == *"busy: mounted at $BATS_TEST_TMPDIR/m"* ]]
	umount "$BATS_TEST_TMPDIR/m"
	ublkctl del 0
	nothing_left
}

@test "the file system of a backing is busy while it is served, no other is" {
	mkdir -p "$BATS_TEST_TMPDIR/b" "$BATS_TEST_TMPDIR/other"
	mount -t tmpfs -o size=20M x "$BATS_TEST_TMPDIR/b"
	mount -t tmpfs -o size=20M y "$BATS_TEST_TMPDIR/other"
	ublkctl add -t file -f "$BATS_TEST_TMPDIR/b/f" --create -s 8M
	umount "$BATS_TEST_TMPDIR/other"
	run umount "$BATS_TEST_TMPDIR/b"
	[ "$status" -ne 0 ]
	ublkctl del 0
	umount "$BATS_TEST_TMPDIR/b"
	nothing_left
}

@test "a server in a PID namespace: nobody waits for the host's process of that number" {
	unshare -p -f "$PWD/${BUILD:-build}/ublkctl" add -t null -n 3
	wait_for state_is 3 dead
	ublkctl del 3
	nothing_left
}

@test "a file in place of a node is neither the node nor waited for" {
	ublkctl add -t null
	rm /dev/ublkb0
	echo mine >/dev/ublkb0
	ublkctl list --json | jq -e '.devices[0].node_missing == true'
	ublkctl del --timeout 5 0
	[ "$(cat /dev/ublkb0)" = mine ]
	rm /dev/ublkb0
	nothing_left
}

@test "anybody can lock /run/ublkctl, and nobody waits for it" {
	ublkctl add -t null
	setpriv --reuid 65534 --regid 65534 --clear-groups flock /run/ublkctl sleep 1000 3>&- &
	holder=$!
	wait_for grep -q "FLOCK.* $holder " /proc/locks
	ublkctl del --timeout 20 0
	ublkctl add -t null --timeout 20
	ublkctl del 0
	pkill -P "$holder" || true
	kill "$holder" 2>/dev/null || true
	nothing_left
}

@test "a user of partition 100 is seen" {
	local d i fd
	d=$(ublkctl add -t null)
	for ((i = 1; i <= 100; i++)); do addpart "$d" $i $((i * 8)) 8; done
	wait_for test -b "${d}p100"
	exec {fd}<"${d}p100"
	run_split ublkctl del 0
	[ "$status" -eq 5 ]
	[[ $err == *"device 0 is busy: open by process "* ]]
	exec {fd}<&-
	ublkctl del --wait 10 0
	nothing_left
}

@test "without /proc nobody is taken for absent, without /sys no device" {
	ublkctl add -t null
	run_split unshare -m sh -c "mount -t tmpfs none /proc && exec '$PWD/${BUILD:-build}/ublkctl' del 0"
	is_sanitized || [ "$status" -eq 5 ]
	[[ $err == *"without /proc"* ]]
	for words in "del --all" "restart --all" stat list; do
		run_split unshare -m sh -c "mount -t tmpfs none /sys && exec '$PWD/${BUILD:-build}/ublkctl' $words"
		[ "$status" -eq 1 ]
		[[ $err == *"cannot read /sys/class/ublk-char"* ]]
	done
	ublkctl del 0
	nothing_left
}

@test "a signal to all processes of a server deletes the device" {
	ublkctl add -t null
	pkill -TERM ublkctl
	wait_for nothing_left
}

@test "several del --all at a time: gone is gone" {
	for _ in 1 2 3 4 5 6; do ublkctl add -t null; done
	pids=()
	for _ in 1 2 3; do
		ublkctl del --all 3>&- &
		pids+=($!)
	done
	for p in "${pids[@]}"; do wait "$p"; done
	nothing_left
}
