#!/usr/bin/env bats
# Backings that fail: the client gets the error, the log gets one line, the device stays live and the
# next good request works.
#
# shellcheck disable=SC2154 # set by bats and common.bash

load common
load backing

setup() {
	cd "$BATS_TEST_DIRNAME/../.." || return 1
	dir=$BATS_TEST_TMPDIR
	img=$dir/img
	# the server's log goes to /dev/log, which nobody else has here
	log=$dir/log
	start_log
}

# One datagram a line into $log.
start_log() {
	rm -f /dev/log
	perl -MSocket -e 'socket(S, AF_UNIX, SOCK_DGRAM, 0) && bind(S, sockaddr_un("/dev/log")) or die;
		open(F, ">", $ARGV[0]) or die; F->autoflush(1);
		while (defined recv(S, $m, 8192, 0)) { $m =~ s/[\0\n]//g; print F "$m\n"; }' "$log" \
		>/dev/null 2>&1 3>&- &
	logger=$!
	wait_for test -S /dev/log
}

teardown() {
	kill "$logger"
	rm -f /dev/log
	if nothing_left 2>/dev/null; then return 0; fi
	umount -A /mnt 2>/dev/null
	ublkctl del --all --force >/dev/null 2>&1
	dmsetup remove_all >/dev/null 2>&1
	return 0
}

teardown_file() {
	backing_drop_all
}

# "MODE PATH" of all that the driver has; without UBLKCTL_FULL=1 every mode and path once
shapes() {
	local mode path
	while read -r mode path; do
		if has_mode "$mode" "$path"; then echo "$mode $path"; fi
	done < <(if full; then
		for mode in copy user-copy zero-copy auto-zc auto-zc-fallback; do
			printf '%s per-io\n%s batch\n' $mode $mode
		done
		echo get-data per-io
	else
		printf '%s\n' "copy batch" "get-data per-io" "user-copy per-io" "zero-copy batch" "auto-zc per-io"
	fi)
}

# Lines of the log about failed requests.
failures() {
	sed -n '/ failed: /p' "$log"
}

# One line since it was emptied at the time $start, or one more for each 5 s since.
log_is_brief() {
	local lines
	failures
	lines=$(failures | wc -l)
	[ "$lines" -ge 1 ]
	[ "$lines" -le $((1 + (${EPOCHREALTIME/./} - start) / 5000000)) ]
}

empty_log() {
	: >"$log"
	start=${EPOCHREALTIME/./}
}

# dd fails with this message. Direct I/O, one request of BYTES at OFFSET.
dd_fails() { # MESSAGE read|write DEVICE OFFSET BYTES
	run dd_works "${@:2}"
	[ "$status" -ne 0 ]
	[[ $output == *"$1"* ]]
}

dd_works() { # read|write DEVICE OFFSET BYTES
	if [ "$1" = read ]; then
		dd if="$2" of=/dev/null bs="$4" count=1 skip="$3" iflag=direct,skip_bytes status=none
	else
		dd if=/dev/zero of="$2" bs="$4" count=1 seek="$3" oflag=direct,seek_bytes status=none
	fi
}

@test "a full file system: ENOSPC reaches the client, one line the log, good I/O goes on" {
	local mode path pid mib=$((1 << 20))
	mount -t tmpfs -o size=4M small /mnt
	while read -r mode path; do
		echo "shape: $mode $path"
		empty_log
		rm -f /mnt/img
		truncate -s 64M /mnt/img
		device=$(add_on "$path" -t file -f /mnt/img --data-mode "$mode")
		pid=$(server_pid 0)
		head -c 1M /dev/urandom >"$dir/data"
		dd if="$dir/data" of="$device" bs=64k oflag=direct status=none
		run dd if=/dev/zero of="$device" bs=64k seek=16 oflag=direct status=none
		[ "$status" -ne 0 ]
		[[ $output == *"No space left on device"* ]]
		for i in 1 2 3; do dd_fails "No space left" write "$device" $((60 * mib)) 4096; done
		state_is 0 live
		[ "$(server_pid 0)" -eq "$pid" ]
		# what is there is read and written over, and a hole makes room
		cmp -n $mib "$device" "$dir/data"
		dd if="$dir/data" of="$device" bs=64k count=4 seek=4 oflag=direct status=none
		blkdiscard -o $mib -l $((2 * mib)) "$device"
		dd_works write "$device" $((60 * mib)) 4096
		ublkctl del "$device"
		log_is_brief
		[[ $(failures | head -n 1) =~ \ write\ of\ 65536\ bytes\ at\ offset\ [0-9]+\ of\ /mnt/img\ failed:\ No\ space ]]
	done < <(shapes)
	umount /mnt
}

@test "a full ext4: ENOSPC reaches the client, good I/O goes on" {
	backing_fs ext4 $((16 << 20))
	truncate -s 64M "$BACKINGS/ext4/mnt/img"
	device=$(ublkctl add -t file -f "$BACKINGS/ext4/mnt/img" --io direct)
	run dd if=/dev/zero of="$device" bs=64k oflag=direct status=none
	[ "$status" -ne 0 ]
	[[ $output == *"No space left on device"* ]]
	state_is 0 live
	blkdiscard -o 0 -l 4M "$device"
	dd_works write "$device" $((60 << 20)) 4096
	ublkctl del "$device"
	failures | grep -q "No space"
}

@test "a disk with a bad range: EIO there and nowhere else, one line in the log with the offset" {
	local mode path disk pid
	disk=$(null_blk_make nullb-bad $((8 << 20)))
	modprobe dm_mod
	# sectors 8192 to 8199 answer EIO
	dmsetup create bad --table "0 8192 linear $disk 0
8192 8 error
8200 8184 linear $disk 8200"
	while read -r mode path; do
		echo "shape: $mode $path"
		empty_log
		device=$(add_on "$path" -t file -f /dev/mapper/bad --data-mode "$mode" --offset 64K)
		pid=$(server_pid 0)
		# in the device the bad range is at 4 MiB - 64 KiB
		dd_fails "Input/output error" read "$device" $((4096 * 1024 - 65536)) 4096
		dd_fails "Input/output error" write "$device" $((4096 * 1024 - 65536)) 4096
		dd_fails "Input/output error" read "$device" $((4096 * 1024 - 65536 - 8192)) 65536
		dd_works write "$device" $((4096 * 1024 - 65536 - 4096)) 4096
		dd_works read "$device" $((4096 * 1024 - 65536 + 4096)) 4096
		dd if=/dev/zero of="$device" bs=4k count=1 oflag=direct conv=fsync status=none
		state_is 0 live
		[ "$(server_pid 0)" -eq "$pid" ]
		ublkctl del "$device"
		log_is_brief
		[[ $(failures | head -n 1) == *" read of 4096 bytes at offset 4194304 of /dev/mapper/bad failed: Input/output error" ]]
	done < <(shapes)
	dmsetup remove --retry bad
	null_blk_drop nullb-bad
}

@test "a disk that fails all writes and flushes for a while: errors, then it works again" {
	local disk table
	disk=$(null_blk_make nullb-flaky $((8 << 20)) cache_size=1)
	modprobe dm_flakey
	table="0 16384 linear $disk 0"
	dmsetup create flaky --table "$table"
	device=$(ublkctl add -t file -f /dev/mapper/flaky)
	dd if=/dev/zero of="$device" bs=4k count=4 oflag=direct conv=fsync status=none
	dmsetup suspend flaky
	dmsetup load flaky --table "0 16384 flakey $disk 0 0 1000 1 error_writes"
	dmsetup resume flaky
	dd_fails "Input/output error" write "$device" 4096 4096
	run dd if=/dev/zero of="$device" bs=4k count=1 oflag=direct,dsync status=none
	[ "$status" -ne 0 ]
	# nothing is written, only flushed
	run dd of="$device" if=/dev/null bs=4k count=0 conv=notrunc,fsync status=none
	[ "$status" -ne 0 ]
	[[ $output == *"Input/output error"* ]]
	# flakey counts a discard among the writes
	run blkdiscard -o 0 -l 4096 "$device"
	[ "$status" -ne 0 ]
	[[ $output == *"Input/output error"* ]]
	dmsetup suspend flaky
	dmsetup load flaky --table "$table"
	dmsetup resume flaky
	state_is 0 live
	dd if=/dev/zero of="$device" bs=4k count=4 oflag=direct conv=fsync status=none
	stress --ops 300 --max 65536 --align 512 "$device"
	ublkctl del "$device"
	dmsetup remove --retry flaky
	null_blk_drop nullb-flaky
}

@test "a file cut off while it is served: reads behind its end fail, writes make it longer again" {
	local mode path pid
	while read -r mode path; do
		echo "shape: $mode $path"
		empty_log
		head -c 1M /dev/urandom >"$img"
		cp "$img" "$dir/before"
		device=$(add_on "$path" -t file -f "$img" --data-mode "$mode")
		pid=$(server_pid 0)
		# not at the end of a block either
		truncate -s $((300 * 1024 + 100)) "$img"
		dd_fails "Input/output error" read "$device" $((512 * 1024)) 4096
		# across the new end
		dd_fails "Input/output error" read "$device" $((296 * 1024)) 8192
		dd_works read "$device" $((292 * 1024)) 8192
		cmp -n $((300 * 1024)) "$dir/before" <(dd if="$device" bs=4k count=75 iflag=direct status=none)
		state_is 0 live
		dd if="$dir/before" of="$device" bs=1M oflag=direct status=none
		cmp "$dir/before" <(dd if="$device" bs=1M iflag=direct status=none)
		[ "$(server_pid 0)" -eq "$pid" ]
		ublkctl del "$device"
		cmp "$img" "$dir/before"
		log_is_brief
		[[ $(failures | head -n 1) == *" read of 4096 bytes at offset 524288 of $img failed: "* ]]
	done < <(shapes)
}

@test "a file cut off on a file system with direct I/O: EIO as well, also in the middle of a block" {
	local io
	backing_fs ext4 $((32 << 20))
	for io in direct buffered; do
		head -c 1M /dev/urandom >"$BACKINGS/ext4/mnt/img"
		device=$(ublkctl add -t file -f "$BACKINGS/ext4/mnt/img" --io $io)
		truncate -s $((300 * 1024 + 100)) "$BACKINGS/ext4/mnt/img"
		dd_fails "Input/output error" read "$device" $((512 * 1024)) 4096
		dd_fails "Input/output error" read "$device" $((296 * 1024)) 8192
		dd_works read "$device" $((292 * 1024)) 8192
		dd_works write "$device" $((512 * 1024)) 4096
		dd_works read "$device" $((296 * 1024)) 8192
		ublkctl del "$device"
	done
}

@test "many failures at a time are one line in the log, later ones another, the first scan included" {
	modprobe dm_mod
	dmsetup create errors --table "0 16384 error"
	empty_log
	# the driver looks for partitions before add returns or right after
	device=$(ublkctl add -t file -f /dev/mapper/errors)
	for i in 1 2 3 4 5 6 7 8; do dd_fails "Input/output error" read "$device" $((i * 4096)) 4096; done
	wait_for test -s "$log"
	log_is_brief
	[[ $(failures | head -n 1) == "<27>ublkctl[0]: read of "*" at offset 0 of /dev/mapper/errors failed: Input/output error" ]]
	sleep 6
	dd_fails "Input/output error" read "$device" 65536 4096
	wait_for grep -q "at offset 65536 " "$log"
	log_is_brief
	ublkctl del "$device"
	dmsetup remove --retry errors
}

@test "memory that cannot be locked: the log says so, the device works" {
	! is_sanitized || skip "a sanitizer's memory is never locked"
	empty_log
	device=$(prlimit --memlock=65536:65536 setpriv --bounding-set -sys_resource,-ipc_lock \
		"$PWD/build/ublkctl" add -t file -f /dev/shm/locked --create -s 8M -q 1 -d 4)
	dd if="$device" of=/dev/null bs=1M count=8 iflag=direct status=none
	wait_for grep -q "ublkctl.0.: memory is not locked (not permitted: RLIMIT_MEMLOCK, CAP_IPC_LOCK)" "$log"
	ublkctl del "$device"
	rm /dev/shm/locked
}
