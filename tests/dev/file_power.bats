#!/usr/bin/env bats
# Power cuts: a disk that keeps a log of what is durable in which order (dm-log-writes) lies below. After
# each write that was acknowledged as durable the log gets a mark; the disk is put together as it was at
# the mark, and must have the data.
#
# shellcheck disable=SC2154 # set by bats and common.bash

load common
load backing

setup() {
	cd "$BATS_TEST_DIRNAME/../.." || return 1
	dir=$BATS_TEST_TMPDIR
	modprobe dm_log_writes
	modprobe loop
	disk=$(null_blk_make nullb-disk $((32 << 20)))
	journal=$(null_blk_make nullb-log $((256 << 20)))
}

teardown() {
	umount /mnt 2>/dev/null
	ublkctl del --all --force >/dev/null 2>&1
	dmsetup remove --retry logged 2>/dev/null
	null_blk_drop nullb-disk
	null_blk_drop nullb-log
	return 0
}

# From here on everything is logged; what the disk holds now is the start.
start_log() {
	cp --sparse=always "$disk" "$dir/start"
	dmsetup create logged --table "0 $((32 << 11)) log-writes $disk $journal"
}

mark() { # NAME
	dmsetup message logged 0 mark "$1"
}

# The disk at a mark, in $dir/cut.
cut_power() { # MARK
	cp --sparse=always "$dir/start" "$dir/cut"
	tests/dev/replay "$journal" "$dir/cut" "$1"
}

record() { # NUMBER: 4 KiB that no other number has
	yes "record $1 of $BATS_TEST_NAME" | head -c 4096
}

# Writes a record to its place in a way that makes it durable, or does not.
put_record() { # DEVICE NUMBER fsync|dsync|nothing
	local words=()
	case $3 in
	fsync) words=(oflag=direct conv=fsync) ;;
	dsync) words=("oflag=direct,dsync") ;;
	nothing) words=(oflag=direct) ;;
	esac
	record "$2" | dd of="$1" bs=4k seek="$2" iflag=fullblock "${words[@]}" status=none
}

has_record() { # FILE NUMBER
	cmp -s -n 4096 <(record "$2") <(dd if="$1" bs=4k skip="$2" count=1 status=none)
}

shapes() {
	echo copy per-io
	echo user-copy per-io
	if has_batch; then printf '%s\n' "copy batch" "zero-copy batch" "auto-zc per-io"; fi
}

@test "power cut, disk below: what was flushed or written with FUA is there, what was not need not be" {
	local mode path n=0 last
	start_log
	while read -r mode path; do
		device=$(add_on "$path" -t file -f /dev/mapper/logged --data-mode "$mode")
		for how in fsync dsync nothing; do
			n=$((n + 1))
			put_record "$device" $n $how
			mark "$how-$n"
		done
		ublkctl del "$device"
	done < <(shapes)
	dmsetup remove --retry logged
	last=$n
	tests/dev/replay "$journal" >"$dir/list"
	for ((n = 1; n <= last; n += 3)); do
		cut_power fsync-$n
		has_record "$dir/cut" $n
		cut_power dsync-$((n + 1))
		has_record "$dir/cut" $n
		has_record "$dir/cut" $((n + 1))
		# FUA is not only a flush afterwards
		grep -qE "^write $(((n + 1) * 8)) 8 [0-9]*[2367]$" "$dir/list"
		cut_power nothing-$((n + 2))
		! has_record "$dir/cut" $((n + 2)) || false
	done
}

@test "power cut, file in ext4 below: its blocks and its data are there after the journal was replayed" {
	local io n=0 last how
	mkfs.ext4 -q "$disk"
	start_log
	mount /dev/mapper/logged /mnt
	truncate -s 8M /mnt/img
	sync
	for io in direct buffered; do
		device=$(ublkctl add -t file -f /mnt/img --io $io)
		for how in fsync dsync; do
			n=$((n + 1))
			put_record "$device" $n $how
			mark "$how-$n"
		done
		blkdiscard -o 0 -l 4096 "$device"
		ublkctl del "$device"
	done
	umount /mnt
	dmsetup remove --retry logged
	last=$n n=0
	for io in direct buffered; do
		for how in fsync dsync; do
			n=$((n + 1))
			cut_power "$how-$n"
			mount -o loop "$dir/cut" /mnt
			for ((i = 1; i <= n; i++)); do has_record /mnt/img $i; done
			umount /mnt
			e2fsck -fn "$dir/cut"
		done
	done
	[ $n -eq $last ]
}
