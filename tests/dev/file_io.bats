#!/usr/bin/env bats
# The file target at work: which bytes of the backing it touches, and which operations reach it as what.
# Requests are counted where the kernel counts them (Documentation/block/stat.rst), on both sides.
#
# shellcheck disable=SC2154 # set by bats and common.bash

load common
load backing

setup() {
	cd "$BATS_TEST_DIRNAME/../.." || return 1
	dir=$BATS_TEST_TMPDIR
	img=$dir/img
}

teardown_file() {
	backing_drop_all
}

# A number of /sys/block/NAME/stat: reads 1, writes 5, sectors written 7, discards 12, flushes 16.
count_of() { # DEVICE FIELD
	local -a fields
	read -r -a fields <"/sys/block/${1#/dev/}/stat"
	echo "${fields[$2 - 1]}"
}

# Bytes that a file has allocated.
allocated() { # FILE
	echo $(($(stat -c %b "$1") * 512))
}

# "MODE PATH" of everything that the driver has, or only the first MODEs given.
shapes() { # MODE...
	local mode path
	for mode in "$@"; do
		for path in per-io batch; do
			[ "$mode" != get-data ] || [ "$path" = per-io ] || continue
			if has_mode "$mode" "$path"; then echo "$mode $path"; fi
		done
	done
}

# Bytes of two files from an offset on, so many.
same_bytes() { # FILE FILE OFFSET BYTES
	cmp -i "$3" -n "$4" "$1" "$2"
}

@test "a window is these bytes of the backing and no others" {
	local mode path start=$((3 * 512)) size=$((2 << 20))
	head -c $((3 << 20)) /dev/urandom >"$dir/before"
	while read -r mode path; do
		cp "$dir/before" "$img"
		device=$(add_on "$path" -t file -f "$img" --offset $start --size $size --data-mode "$mode")
		[ "$(blockdev --getsize64 "$device")" -eq $size ]
		cmp -n $size "$device" <(tail -c +$((start + 1)) "$dir/before")
		stress --ops 300 --max 65536 --discard-zeroes --image "$dir/model" "$device"
		# and the very first and last bytes
		for at in 0 $((size / 512 - 1)); do
			head -c 512 /dev/urandom >"$dir/block"
			dd if="$dir/block" of="$device" bs=512 seek=$at oflag=direct conv=notrunc status=none
			dd if="$dir/block" of="$dir/model" bs=512 seek=$at conv=notrunc status=none
		done
		ublkctl del "$device"
		[ "$(stat -c %s "$img")" -eq $((3 << 20)) ]
		same_bytes "$img" "$dir/before" 0 $start
		cmp -n $size "$dir/model" <(tail -c +$((start + 1)) "$img")
		same_bytes "$img" "$dir/before" $((start + size)) $(((3 << 20) - start - size))
	done < <(echo copy per-io; if has_batch; then echo zero-copy batch; else echo user-copy per-io; fi)
}

@test "a window of a block device is these bytes and no others" {
	local start=$((5 * 512)) size=$((2 << 20)) disk
	disk=$(null_blk_make nullb-window $((4 << 20)))
	head -c $((4 << 20)) /dev/urandom >"$dir/before"
	dd if="$dir/before" of="$disk" bs=1M oflag=direct status=none
	device=$(ublkctl add -t file -f "$disk" --offset $start --size $size)
	stress --ops 300 --max 65536 --align 512 --image "$dir/model" "$device"
	blkdiscard "$device"
	dd if="$dir/model" of="$device" bs=1M oflag=direct status=none
	ublkctl del "$device"
	blockdev --flushbufs "$disk"
	same_bytes "$disk" "$dir/before" 0 $start
	cmp -n $size "$dir/model" <(tail -c +$((start + 1)) "$disk")
	same_bytes "$disk" "$dir/before" $((start + size)) $(((4 << 20) - start - size))
	null_blk_drop nullb-window
}

@test "bytes behind the last whole block of a backing stay as they are" {
	head -c $(((1 << 20) + 700)) /dev/urandom >"$dir/before"
	cp "$dir/before" "$img"
	device=$(ublkctl add -t file -f "$img" 2>/dev/null)
	dd if=/dev/zero of="$device" bs=512 count=2049 oflag=direct status=none
	blkdiscard -z "$device"
	ublkctl del "$device"
	[ "$(stat -c %s "$img")" -eq $(((1 << 20) + 700)) ]
	cmp -n $(((1 << 20) + 512)) "$img" /dev/zero
	same_bytes "$img" "$dir/before" $(((1 << 20) + 512)) 188
}

@test "discard of 64 MiB gives the blocks back, write-zeroes keeps them or gives them back as asked" {
	local mib=$((1 << 20)) type file writes
	for type in ext4 xfs; do
		backing_fs $type $((200 * mib))
		file=$BACKINGS/$type/mnt/img
		fallocate -l 80M "$file"
		device=$(ublkctl add -t file -f "$file")
		[ "$(queue_attr "$device" discard_max_bytes)" -ge $((64 * mib)) ]
		[ "$(queue_attr "$device" write_zeroes_max_bytes)" -ge $((64 * mib)) ]
		dd if=/dev/urandom of="$device" bs=1M seek=20 count=1 oflag=direct status=none
		[ "$(allocated "$file")" -ge $((80 * mib)) ]
		# BLKZEROOUT asks for NOUNMAP (block/ioctl.c): one request, no data, nothing given back
		writes=$(count_of "$device" 5)
		blkdiscard -z -o 8M -l 64M "$device"
		[ "$(count_of "$device" 5)" -eq $((writes + 1)) ]
		[ "$(allocated "$file")" -ge $((80 * mib)) ]
		cmp -n $mib -i $((20 * mib)) "$device" /dev/zero
		# a punched hole in a block device is write-zeroes without NOUNMAP (block/fops.c)
		dd if=/dev/urandom of="$device" bs=1M seek=20 count=1 oflag=direct status=none
		fallocate -p -o 8M -l 32M "$device"
		[ "$(allocated "$file")" -le $((50 * mib)) ]
		cmp -n $mib -i $((20 * mib)) "$device" /dev/zero
		fallocate -l 80M "$file"
		[ "$(allocated "$file")" -ge $((80 * mib)) ]
		discards=$(count_of "$device" 12)
		blkdiscard -o 8M -l 64M "$device"
		[ "$(count_of "$device" 12)" -eq $((discards + 1)) ]
		[ "$(allocated "$file")" -le $((18 * mib)) ]
		ublkctl del "$device"
		[ "$(stat -c %s "$file")" -eq $((80 * mib)) ]
		umount "$BACKINGS/$type/mnt"
	done
}

@test "what the backing cannot do is not announced" {
	truncate -s 64M "$img"
	# tmpfs punches holes, but has no range to zero (mm/shmem.c)
	run fallocate -z -l 4096 "$img"
	[ "$status" -ne 0 ]
	device=$(ublkctl add -t file -f "$img")
	[ "$(queue_attr "$device" discard_max_bytes)" -gt 0 ]
	[ "$(queue_attr "$device" write_zeroes_max_bytes)" -eq 0 ]
	dd if=/dev/urandom of="$device" bs=1M count=8 oflag=direct status=none
	[ "$(allocated "$img")" -ge $((8 << 20)) ]
	blkdiscard -o 0 -l 4M "$device"
	[ "$(allocated "$img")" -le $((5 << 20)) ]
	# the block layer writes the zeros itself
	blkdiscard -z -o 4M -l 4M "$device"
	cmp -n $((8 << 20)) "$device" /dev/zero
	ublkctl del "$device"
	# ramfs cannot do any of it, nor direct I/O
	mount -t ramfs ram /mnt
	head -c 1M /dev/urandom >/mnt/img
	refused 3 "direct" -t file -f /mnt/img --io direct
	device=$(ublkctl add -t file -f /mnt/img)
	[ "$(ublkctl list --json | jq -r .devices[0].io)" = buffered ]
	[ "$(queue_attr "$device" discard_max_bytes)" -eq 0 ]
	[ "$(queue_attr "$device" write_zeroes_max_bytes)" -eq 0 ]
	stress --ops 300 --max 65536 "$device"
	ublkctl del "$device"
	umount /mnt
	# a block device with neither
	disk=$(null_blk_make nullb-plain $((4 << 20)) discard=0)
	device=$(ublkctl add -t file -f "$disk")
	[ "$(queue_attr "$device" discard_max_bytes)" -eq 0 ]
	[ "$(queue_attr "$device" write_zeroes_max_bytes)" -eq 0 ]
	ublkctl del "$device"
	null_blk_drop nullb-plain
}

@test "--no-discard announces neither, and zeros are written" {
	fallocate -l 8M "$img"
	device=$(ublkctl add -t file -f "$img" --no-discard)
	[ "$(queue_attr "$device" discard_max_bytes)" -eq 0 ]
	[ "$(queue_attr "$device" write_zeroes_max_bytes)" -eq 0 ]
	run blkdiscard "$device"
	[ "$status" -ne 0 ]
	dd if=/dev/urandom of="$device" bs=1M count=8 oflag=direct status=none
	blkdiscard -z "$device"
	cmp -n $((8 << 20)) "$device" /dev/zero
	ublkctl del "$device"
	[ "$(allocated "$img")" -ge $((8 << 20)) ]
}

@test "a block device that gives up write-zeroes in use: unmapping still leaves zeros" {
	modprobe loop
	truncate -s 8M "$img"
	loop=$(losetup --show -f "$img")
	device=$(ublkctl add -t file -f "$loop")
	[ "$(queue_attr "$device" write_zeroes_max_bytes)" -gt 0 ]
	dd if=/dev/urandom of="$device" bs=1M count=8 oflag=direct status=none
	# the loop driver finds out that tmpfs has no such operation
	blkdiscard -z -o 0 -l 1M "$device"
	fallocate -p -o 2M -l 1M "$device"
	blkdiscard -o 4M -l 1M "$device"
	cmp -n $((1 << 20)) "$device" /dev/zero
	cmp -n $((1 << 20)) -i $((2 << 20)) "$device" /dev/zero
	ublkctl del "$device"
	losetup -d "$loop"
}

@test "discards that the disk below takes in pieces hit their own range only" {
	local mode path loop
	modprobe loop
	truncate -s 8M "$img"
	loop=$(losetup --show -f "$img")
	# its pieces of 4 KiB are not those of the device
	[ "$(queue_attr "$loop" discard_granularity)" -gt 512 ]
	while read -r mode path; do
		device=$(add_on "$path" -t file -f "$loop" --offset 512 --data-mode "$mode")
		stress --ops 1500 --max 65536 --discard-zeroes --image "$dir/model" "$device"
		ublkctl del "$device"
		blockdev --flushbufs "$loop"
		cmp "$dir/model" <(tail -c +513 "$loop")
	done < <(echo copy per-io; if has_batch; then echo zero-copy batch; fi)
	losetup -d "$loop"
}

@test "a write-back cache with FUA is announced, and each flush and FUA write reaches the backing" {
	local mode path disk flushes own
	# a disk with a cache and without FUA: the block layer below adds a flush for each FUA write
	disk=$(null_blk_make nullb-cache $((8 << 20)) cache_size=1 fua=0)
	[ "$(queue_attr "$disk" write_cache)" = "write back" ]
	[ "$(queue_attr "$disk" fua)" -eq 0 ]
	while read -r mode path; do
		device=$(add_on "$path" -t file -f "$disk" --data-mode "$mode")
		[ "$(queue_attr "$device" write_cache)" = "write back" ]
		[ "$(queue_attr "$device" fua)" -eq 1 ]
		flushes=$(count_of "$disk" 16)
		dd if=/dev/zero of="$device" bs=4k count=20 oflag=direct status=none
		[ "$(count_of "$disk" 16)" -eq "$flushes" ]
		for i in 1 2 3 4 5; do
			dd if=/dev/zero of="$device" bs=4k count=1 oflag=direct conv=fsync status=none
		done
		[ "$(count_of "$disk" 16)" -eq $((flushes + 5)) ]
		# a direct write with O_DSYNC is a FUA write and then a flush (block/fops.c); with both of
		# them at work the disk has seen more flushes than the device
		flushes=$(count_of "$disk" 16) own=$(count_of "$device" 16)
		dd if=/dev/zero of="$device" bs=4k count=10 oflag=direct,dsync status=none
		own=$(($(count_of "$device" 16) - own))
		[ "$(count_of "$disk" 16)" -ge $((flushes + own + 10)) ]
		ublkctl del "$device"
	done < <(shapes copy get-data user-copy zero-copy auto-zc)
	null_blk_drop nullb-cache
}

@test "flush and FUA on a file reach the disk below its file system" {
	local io disk flushes
	disk=$(null_blk_make nullb-cache $((64 << 20)) cache_size=1)
	mkfs.ext4 -q "$disk"
	mount "$disk" /mnt
	fallocate -l 8M /mnt/img
	for io in direct buffered; do
		device=$(ublkctl add -t file -f /mnt/img --io $io)
		dd if=/dev/urandom of="$device" bs=1M count=8 oflag=direct conv=fsync status=none
		flushes=$(count_of "$disk" 16)
		for i in 1 2 3 4 5; do
			dd if=/dev/urandom of="$device" bs=4k count=1 seek=$i oflag=direct conv=fsync status=none
		done
		[ "$(count_of "$disk" 16)" -ge $((flushes + 5)) ]
		flushes=$(count_of "$disk" 16)
		dd if=/dev/urandom of="$device" bs=4k count=5 oflag=direct,dsync status=none
		[ "$(count_of "$disk" 16)" -ge $((flushes + 5)) ]
		ublkctl del "$device"
	done
	umount /mnt
	null_blk_drop nullb-cache
}

@test "batch: several threads on one queue, one on several, smallest and largest depth, in every mode" {
	local mode shape
	needs_batch
	truncate -s 8M "$img"
	for mode in copy user-copy zero-copy auto-zc auto-zc-fallback; do
		for shape in "-q 1 --threads 3 -d 8" "-q 2 --threads 1 -d 2" "-q 1 -d 4096"; do
			echo "shape: $mode $shape"
			# shellcheck disable=SC2086 # several words
			device=$(ublkctl add -t file -f "$img" -b --data-mode $mode $shape)
			stress --ops 400 --max 65536 --discard-zeroes --image "$dir/model" "$device" >/dev/null
			ublkctl del "$device"
			cmp "$dir/model" "$img"
		done
	done
}

@test "per-I/O path: depth 1 and 4096 in every mode" {
	local mode depth
	truncate -s 8M "$img"
	for mode in copy get-data user-copy zero-copy auto-zc auto-zc-fallback; do
		has_mode $mode per-io || continue
		for depth in 1 4096; do
			echo "depth: $mode $depth"
			device=$(ublkctl add -t file -f "$img" --data-mode $mode -q 1 -d $depth)
			stress --ops 400 --max 65536 --discard-zeroes --image "$dir/model" "$device" >/dev/null
			ublkctl del "$device"
			cmp "$dir/model" "$img"
		done
	done
}

# One part of such a request is too large for the disk below in one piece and would wait, the other is on
# its way, among others: io_uring before Linux 6.14 forgets it when it is tried without waiting.
@test "requests across the seam of a stacked backing end" {
	local mode path half=$((16 << 20))
	backing=$(backing_make dm $((2 * half)))
	[ "$(<"/sys/dev/block/$(stat -Lc %Hr:%Lr "$backing")/queue/max_sectors_kb")" -lt 400 ]
	while read -r mode path; do
		device=$(add_on "$path" -t file -f "$backing" -q 1 --data-mode "$mode")
		for rw in write read; do
			timeout -s KILL 60 fio --name=seam --thread --clocksource=clock_gettime --filename="$device" \
				--rw=$rw --bs=512k --offset=$((half - 848 * 512 - (7 << 19))) --size=8m --ioengine=io_uring \
				--iodepth=16 --iodepth_batch=16 --direct=1 --verify=crc32c --output="$dir/fio.txt"
		done
		ublkctl del "$device"
	done < <(shapes copy user-copy zero-copy)
	backing_drop dm
}

@test "memory alignment and segments are those of the backing where its driver gets the pages" {
	has_zero_copy || skip "Linux $(uname -r) has no zero-copy mode"
	modprobe brd rd_nr=1 rd_size=8192
	truncate -s 8M "$dir/disk"
	loop=$(losetup --show -f -b 4096 "$dir/disk")
	for disk in "$loop" /dev/ram0; do
		device=$(ublkctl add -t file -f "$disk" -z)
		for attr in dma_alignment max_segments max_segment_size logical_block_size; do
			[ "$(queue_attr "$device" $attr)" = "$(queue_attr "$disk" $attr)" ]
		done
		stress --ops 300 --max 262144 "$device"
		ublkctl del "$device"
	done
	losetup -d "$loop"
	rmmod brd
}

@test "requests of 4 KiB to 32 MiB arrive whole, in one piece or in many" {
	local max bytes
	head -c 33M /dev/urandom >"$dir/data"
	truncate -s 33M "$img"
	for max in 4096 1M 32M; do
		bytes=$((${max%M} == 32 ? 33 << 20 : 3 << 20))
		device=$(ublkctl add -t file -f "$img" --max-io $max -q 1 -d 4)
		dd if="$dir/data" of="$device" bs=$bytes count=1 oflag=direct iflag=fullblock status=none
		[ "$(count_of "$device" 7)" -eq $((bytes / 512)) ]
		cmp -n $bytes "$img" "$dir/data"
		cmp -n $bytes "$dir/data" <(dd if="$device" bs=$bytes count=1 iflag=direct status=none)
		ublkctl del "$device"
	done
}
