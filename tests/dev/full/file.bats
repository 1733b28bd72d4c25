#!/usr/bin/env bats
# The file target before any I/O: what it takes, what it refuses, what it shows and what it leaves.
#
# shellcheck disable=SC2154 # set by bats and common.bash

load ../common
load ../backing

setup() {
	cd "$BATS_TEST_DIRNAME/../../.." || return 1
	dir=$BATS_TEST_TMPDIR
	img=$dir/img
	truncate -s 4M "$img"
}

teardown_file() {
	backing_drop_all
}

# Name of the file that the server of a device has open, and whether with O_DIRECT (proc(5)).
server_opened() { # ID PATH: prints "direct" or "buffered"
	local pid fd flags
	pid=$(server_pid "$1")
	for fd in /proc/"$pid"/fd/*; do
		[ "$fd" -ef "$2" ] || continue
		flags=$(sed -n 's/^flags:\t//p' "/proc/$pid/fdinfo/${fd##*/}")
		if [ $((8#${flags#0} & 8#40000)) -ne 0 ]; then echo direct; else echo buffered; fi
		return 0
	done
	return 1
}

@test "-t file serves a file, -t loop is its second name, every key of list tells the truth" {
	for type in file loop; do
		[ "$(ublkctl add -t $type -f "$img" --offset 1M -q 1 -d 32)" = /dev/ublkb0 ]
		[ "$(blockdev --getsize64 /dev/ublkb0)" -eq $((3 << 20)) ]
		ublkctl list --json | jq -e --arg img "$img" '.devices[0] | .target == "file" and .backing == $img and
			.offset == 1048576 and .size == 3145728 and .io == "direct" and .data_mode == "copy" and
			.block_size == 512 and .read_only == false and .null_data == null and .queues == 1 and
			.depth == 32 and .batch == false and .state == "live"'
		[ "$(ublkctl list --noheadings --raw -o TYPE,MODE,BACKING,IO,OFFSET --bytes)" = \
			"file copy $img direct 1048576" ]
		[ "$(server_opened 0 "$img")" = direct ]
		ublkctl del 0
		nothing_left
	done
}

@test "the record holds the identity of the backing" {
	ublkctl add -t file -f "$img"
	jq -e --arg img "$img" --argjson ino "$(stat -c %i "$img")" --argjson dev "$(stat -c %d "$img")" \
		'.backing == $img and .backing_ino == $ino and .backing_size == 4194304 and
		.backing_dev == $dev' /run/ublkctl/0.json
	ublkctl del 0
}

@test "a relative path becomes absolute, a link its target" {
	ln -s img "$dir/link"
	for name in img ./img ../"${dir##*/}"/img link; do
		(cd "$dir" && "$OLDPWD/${BUILD:-build}/ublkctl" add -t file -f "$name")
		[ "$(ublkctl list --json | jq -r .devices[0].backing)" = "$(realpath "$img")" ]
		ublkctl del 0
	done
}

@test "what cannot be a backing is refused in the foreground, by its name" {
	mkfifo "$dir/fifo"
	: >"$dir/empty"
	head -c 511 /dev/zero >"$dir/tiny"
	refused 2 "--file" -t file
	refused 1 "$dir/none: No such file" -t file -f "$dir/none"
	refused 1 "$dir: Is a directory" -t file -f "$dir"
	refused 1 "$dir/fifo" -t file -f "$dir/fifo"
	refused 1 /dev/zero -t file -f /dev/zero
	refused 1 /proc/version -t file -f /proc/version --read-only
	refused 1 "$dir/empty" -t file -f "$dir/empty"
	refused 1 "511 bytes" -t file -f "$dir/tiny"
	refused 2 "--file" -t file -f ""
	nothing_left
}

@test "a file that may not be written: refused, and served read only" {
	mkdir "$dir/ro"
	mount -t tmpfs ro "$dir/ro"
	truncate -s 1M "$dir/ro/img"
	mount -o remount,ro "$dir/ro"
	refused 1 "$dir/ro/img: Read-only file system" -t file -f "$dir/ro/img"
	ublkctl add -t file -f "$dir/ro/img" --read-only
	cmp -n 1048576 /dev/ublkb0 /dev/zero
	ublkctl del 0
	umount "$dir/ro"
	backing_fs ext4 $((16 << 20))
	truncate -s 1M "$BACKINGS/ext4/mnt/img"
	chattr +i "$BACKINGS/ext4/mnt/img"
	refused 6 "Operation not permitted" -t file -f "$BACKINGS/ext4/mnt/img"
	ublkctl add -t file -f "$BACKINGS/ext4/mnt/img" --read-only
	ublkctl del 0
	chattr -i "$BACKINGS/ext4/mnt/img"
	disk=$(null_blk_make nullb-ro $((1 << 20)))
	blockdev --setro "$disk"
	refused 6 "$disk" -t file -f "$disk"
	ublkctl add -t file -f "$disk" --read-only
	ublkctl del 0
	null_blk_drop nullb-ro
}

@test "a size that is no multiple of the block size is rounded down with the rest named, or refused" {
	truncate -s $(((1 << 20) + 700)) "$img"
	run_split ublkctl add -t file -f "$img"
	[ "$status" -eq 0 ]
	[ "$output" = /dev/ublkb0 ]
	[ "$(wc -l <<<"$err")" -eq 1 ]
	[[ $err == *" 188 bytes of $img"* ]]
	[ "$(blockdev --getsize64 /dev/ublkb0)" -eq $(((1 << 20) + 512)) ]
	ublkctl del 0
	run_split ublkctl add -t file -f "$img" --block-size 4096
	[[ $err == *" 700 bytes of $img"* ]]
	[ "$(blockdev --getsize64 /dev/ublkb0)" -eq $((1 << 20)) ]
	ublkctl del 0
	refused 2 "--size" -t file -f "$img" --size 1000
	refused 2 "--size" -t file -f "$img" --size 4608 --block-size 4096
	refused 2 "--offset" -t file -f "$img" --offset 100
	refused 2 "--offset" -t file -f "$img" --offset 512 --block-size 4096
	nothing_left
}

@test "a range beyond the end is refused with the numbers" {
	refused 1 "4194304" -t file -f "$img" --offset 4M
	refused 1 "$img" -t file -f "$img" --offset 1T
	refused 1 "ends 512 bytes before" -t file -f "$img" --size 4194816
	refused 1 "ends 512 bytes before" -t file -f "$img" --offset 3M --size 1049088
	refused 1 "$img" -t file -f "$img" --size 4E
	refused 1 "$img" -t file -f "$img" --offset 512 --size 4M
	# to the last byte is fine
	ublkctl add -t file -f "$img" --offset 512 --size 4193792
	[ "$(blockdev --getsize64 /dev/ublkb0)" -eq 4193792 ]
	ublkctl del 0
	ublkctl add -t file -f "$img" --offset 4193792
	[ "$(blockdev --getsize64 /dev/ublkb0)" -eq 512 ]
	ublkctl del 0
}

@test "--create makes a sparse file of the size, and del leaves it" {
	(umask 027 && ublkctl add -t file -f "$dir/new" --create -s 1G)
	[ "$(stat -c '%s %a' "$dir/new")" = "1073741824 640" ]
	[ "$(stat -c %b "$dir/new")" -lt 256 ]
	[ "$(blockdev --getsize64 /dev/ublkb0)" -eq 1073741824 ]
	head -c 4096 /dev/urandom >"$dir/data"
	dd if="$dir/data" of=/dev/ublkb0 bs=4k seek=200000 oflag=direct status=none
	ublkctl del 0
	nothing_left
	cmp "$dir/data" <(dd if="$dir/new" bs=4k skip=200000 count=1 status=none)
	ublkctl add -t file -f "$dir/window" --create -s 1M --offset 64K
	[ "$(stat -c %s "$dir/window")" -eq $(((1 << 20) + (64 << 10))) ]
	ublkctl del 0
}

@test "--create refuses what exists, also a link to nothing, and words that do not fit" {
	head -c 1000 /dev/urandom >"$dir/old"
	cp "$dir/old" "$dir/copy"
	ln -s "$dir/nowhere" "$dir/link"
	for name in old link ../"${dir##*/}"/old; do
		refused 5 "exists" -t file -f "$dir/$name" --create -s 1M
	done
	cmp "$dir/old" "$dir/copy"
	[ ! -e "$dir/nowhere" ]
	refused 2 "--size" -t file -f "$dir/new" --create
	refused 2 "--read-only" -t file -f "$dir/new" --create -s 1M --read-only
	refused 1 "$dir/no/such" -t file -f "$dir/no/such/new" --create -s 1M
	refused 2 "--size" -t file -f "$dir/new" --create -s 1000
	backing_fs ext4 $((16 << 20))
	refused 1 "File too large" -t file -f "$BACKINGS/ext4/mnt/new" --create -s 4E
	[ ! -e "$BACKINGS/ext4/mnt/new" ]
	[ "$(ls "$dir")" = $'copy\nimg\nlink\nold\nstderr' ]
}

@test "--create leaves no file when add fails later" {
	ublkctl add -t null -n 5
	run_split ublkctl add -t file -f "$dir/new" --create -s 1M -n 5
	[ "$status" -eq 5 ]
	[[ $err == *"device id 5 is taken"* ]]
	[ ! -e "$dir/new" ]
	ublkctl del 5
	run_split bash -c "'$PWD/${BUILD:-build}/ublkctl' add -t file -f '$dir/new' --create -s 1M >/dev/full"
	[ "$status" -eq 1 ]
	wait_for nothing_left
	[ ! -e "$dir/new" ]
	# the name is free
	ublkctl add -t file -f "$dir/new" --create -s 1M
	ublkctl del 0
}

@test "--read-only: no writes, no cache, no discard, and the file is not touched" {
	touch -d 2001-01-01 "$img"
	ublkctl add -t file -f "$img" --read-only
	[ "$(blockdev --getro /dev/ublkb0)" -eq 1 ]
	[ "$(queue_attr ublkb0 write_cache)" = "write through" ]
	[ "$(queue_attr ublkb0 fua)" -eq 0 ]
	[ "$(queue_attr ublkb0 discard_max_bytes)" -eq 0 ]
	[ "$(queue_attr ublkb0 write_zeroes_max_bytes)" -eq 0 ]
	run dd if=/dev/zero of=/dev/ublkb0 bs=4k count=1 oflag=direct
	[ "$status" -ne 0 ]
	run blkdiscard -f /dev/ublkb0
	[ "$status" -ne 0 ]
	cmp -n 4194304 /dev/ublkb0 "$img"
	ublkctl list --json | jq -e '.devices[0].read_only == true'
	ublkctl del 0
	[ "$(stat -c %y "$img" | cut -c 1-10)" = 2001-01-01 ]
}

@test "--io: what is shown is what the server's descriptor has, explicit is never changed" {
	backing_fs ext4 $((64 << 20))
	file=$BACKINGS/ext4/mnt/img
	truncate -s 8M "$file"
	for io in auto:direct direct:direct buffered:buffered; do
		ublkctl add -t file -f "$file" --io "${io%:*}"
		[ "$(ublkctl list --json | jq -r .devices[0].io)" = "${io#*:}" ]
		[ "$(server_opened 0 "$file")" = "${io#*:}" ]
		ublkctl del 0
	done
	# ext4 does no direct I/O in this mode: it takes the flag and goes through the page cache
	umount "$BACKINGS/ext4/mnt"
	mount -o loop,data=journal "$BACKINGS/ext4/fs" "$BACKINGS/ext4/mnt"
	refused 3 "direct" -t file -f "$file" --io direct
	ublkctl add -t file -f "$file"
	[ "$(ublkctl list --json | jq -r .devices[0].io)" = buffered ]
	[ "$(server_opened 0 "$file")" = buffered ]
	ublkctl del 0
	refused 2 "--io" -t file -f "$file" --io fast
}

@test "direct I/O on a file system with blocks of 4 KiB below: the device has them too" {
	truncate -s 64M "$dir/fs"
	loop=$(losetup --show -f -b 4096 "$dir/fs")
	mkfs.ext4 -q "$loop"
	mount "$loop" /mnt
	truncate -s 4M /mnt/img
	ublkctl add -t file -f /mnt/img
	[ "$(blockdev --getss /dev/ublkb0)" -eq 4096 ]
	ublkctl list --json | jq -e '.devices[0] | .block_size == 4096 and .io == "direct"'
	dd if=/dev/urandom of=/dev/ublkb0 bs=4k count=10 oflag=direct status=none
	ublkctl del 0
	refused 2 "4096" -t file -f /mnt/img --io direct --block-size 512
	refused 2 "4096" -t file -f /mnt/img --io direct --offset 512
	# smaller blocks are possible, but not directly
	ublkctl add -t file -f /mnt/img --block-size 512
	[ "$(blockdev --getss /dev/ublkb0)" -eq 512 ]
	[ "$(ublkctl list --json | jq -r .devices[0].io)" = buffered ]
	dd if=/dev/urandom of=/dev/ublkb0 bs=512 count=10 oflag=direct status=none
	ublkctl del 0
	umount /mnt
	losetup -d "$loop"
}

@test "a block device with sectors of 4 KiB: the device has them, smaller ones are refused" {
	truncate -s 4M "$dir/disk"
	loop=$(losetup --show -f -b 4096 "$dir/disk")
	ublkctl add -t file -f "$loop"
	[ "$(blockdev --getss /dev/ublkb0)" -eq 4096 ]
	[ "$(blockdev --getsize64 /dev/ublkb0)" -eq $((4 << 20)) ]
	[ "$(ublkctl list --json | jq .devices[0].block_size)" -eq 4096 ]
	ublkctl del 0
	refused 2 "4096" -t file -f "$loop" --block-size 512
	refused 2 "4096" -t file -f "$loop" --io buffered --block-size 512
	refused 2 "--offset" -t file -f "$loop" --offset 512
	losetup -d "$loop"
}

@test "a second writable attach is refused by name of file and device; read-only ones share" {
	ln "$img" "$dir/hard"
	ln -s "$img" "$dir/soft"
	ublkctl add -t file -f "$img" -n 3
	for name in img hard soft; do
		run_split ublkctl add -t file -f "$dir/$name"
		[ "$status" -eq 5 ]
		[[ $err == *"$dir/"*"device 3"* ]]
		run_split ublkctl add -t file -f "$dir/$name" --read-only
		[ "$status" -eq 5 ]
		[[ $err == *"device 3"* ]]
	done
	ublkctl del 3
	ublkctl add -t file -f "$img" --read-only
	ublkctl add -t file -f "$dir/hard" --read-only
	run_split ublkctl add -t file -f "$img"
	[ "$status" -eq 5 ]
	ublkctl del 0 1
	# the lock goes with the server, however it ends
	ublkctl add -t file -f "$img"
	kill -9 "$(server_pid 0)"
	wait_for state_is 0 dead
	ublkctl add -t file -f "$img"
	ublkctl del 0 1
}

@test "a mounted, swapped to or held block device is refused for writing without --force" {
	disk=$(null_blk_make nullb-busy $((32 << 20)))
	mkfs.ext4 -q "$disk"
	mount "$disk" /mnt
	refused 5 "$disk" -t file -f "$disk"
	ublkctl add -t file -f "$disk" --read-only
	ublkctl del 0
	ublkctl add -t file -f "$disk" --force
	ublkctl del 0
	umount /mnt
	mkswap -q "$disk"
	swapon "$disk"
	refused 5 "$disk" -t file -f "$disk"
	swapoff "$disk"
	modprobe dm_mod
	dmsetup create holder --table "0 2048 linear $disk 0"
	refused 5 "$disk" -t file -f "$disk"
	dmsetup remove --retry holder
	mknod "$dir/node" b "$(($(stat -c 0x%t "$disk")))" "$(($(stat -c 0x%T "$disk")))"
	ublkctl add -t file -f "$disk"
	refused 5 "device 0" -t file -f "$disk"
	refused 5 "device 0" -t file -f "$dir/node"
	refused 5 "" -t file -f "$disk" --force
	# the device holds it, against others as well
	run mount "$disk" /mnt
	[ "$status" -ne 0 ]
	ublkctl del 0
	null_blk_drop nullb-busy
}

@test "an option of another target is wrong usage" {
	for words in "-f $img" "--offset 512" "--io direct" "--create" "--no-discard" "--force"; do
		# shellcheck disable=SC2086
		refused 2 "-t file" -t null $words
	done
	refused 2 "-t null" -t file -f "$img" --null-data none
	refused 2 "file" -t loopback -f "$img"
}
