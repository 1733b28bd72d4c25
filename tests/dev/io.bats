#!/usr/bin/env bats
# Data path of the null target on both I/O paths.

# shellcheck disable=SC2154 # set by common.bash
load common

fio_run() {
	fio --filename="$1" --rw=randrw --bs=4k --iodepth=64 --ioengine=io_uring --direct=1 \
		--number_ios=20000 --name=x --output-format=json >"$BATS_TEST_TMPDIR/fio.json"
	jq -e '.jobs[0] | .error == 0 and .read.total_ios + .write.total_ios == 20000' "$BATS_TEST_TMPDIR/fio.json"
}

# add with the words given, fio, columns as expected, del
check_shape() {
	local want=$1 d
	shift
	d=$(ublkctl add -t null "$@")
	[ -b "$d" ]
	[ "$(ublkctl list -o BATCH,QUEUES,THREADS,DEPTH --noheadings --raw)" = "$want" ]
	fio_run "$d"
	ublkctl del "$d"
	nothing_left
}

@test "per-I/O path: fio on the default shape" {
	check_shape "no $(nproc) $(nproc) 128"
}

@test "per-I/O path: fio with depth 1 and 4096" {
	check_shape "no 1 1 1" -q 1 -d 1
	check_shape "no $(nproc) $(nproc) 4096" -d 4096
}

@test "batch: fio on the default shape" {
	needs_batch
	check_shape "yes $(nproc) $(nproc) 128" -b
}

@test "batch: one thread on all queues, four threads on one queue" {
	needs_batch
	check_shape "yes $(nproc) 1 128" -b -q 4 --threads 1
	check_shape "yes 1 4 128" -b -q 1 --threads 4
	check_shape "yes 2 3 16" -b -q 2 --threads 3 -d 16
}

@test "batch: fio with depth 4096, and depth 1, which the driver's batch path cannot" {
	needs_batch
	check_shape "yes $(nproc) $(nproc) 4096" -b -d 4096
	check_shape "yes 1 1 2" -b -d 1 -q 1
}

# "START BYTES" of what a server has mapped from 32 to 80 TiB, where programs have nothing
mapped_apart() { # ID
	local start end first=0 sum=0
	while IFS=' -' read -r start end _; do
		start=$((16#$start)) end=$((16#$end))
		if [ "$start" -ge $((32 << 40)) ] && [ "$end" -le $(((80 << 40) + (1 << 30))) ]; then
			if [ "$sum" -eq 0 ]; then first=$start; fi
			sum=$((sum + end - start))
		fi
	done <"/proc/$(server_pid "$1")/maps"
	echo "$first $sum"
}

# Linux 7.3.4 goes on with the batch path of a server that was killed, in whichever process' memory it is in:
# data and tags are written to the addresses that the server had named.
@test "what the driver writes to is where no other process has memory, at random" {
	local path mode want first a b sum
	while read -r path mode want; do
		if ! has_mode "$mode" "$path"; then continue; fi
		echo "$path $mode"
		add_on "$path" -t null -q 1 -d 16 --max-io 64K --data-mode "$mode"
		add_on "$path" -t null -q 1 -d 16 --max-io 64K --data-mode "$mode"
		a=$(mapped_apart 0) b=$(mapped_apart 1)
		echo "$a, $b"
		read -r first sum <<<"$a"
		[ "$sum" -eq "$want" ]
		[ "${b#* }" -eq "$want" ]
		[ "$first" -ne "${b% *}" ]
		ublkctl del --all
	done <<'END'
per-io copy 1048576
batch copy 1056768
batch user-copy 1056768
batch zero-copy 8192
batch auto-zc 8192
END
}

@test "discard and write-zeroes are announced and succeed" {
	for path in $(paths); do
		d=$(add_on "$path" -t null -s 1G)
		[ "$(cat "/sys/block/${d#/dev/}/queue/discard_max_bytes")" -gt 0 ]
		blkdiscard -o 0 -l 1M "$d"
		blkdiscard -z -o 1M -l 1M "$d"
		blockdev --flushbufs "$d"
		ublkctl del "$d"
	done
}

@test "requests larger than --max-io are split by the block layer and complete" {
	for path in $(paths); do
		d=$(add_on "$path" -t null --max-io 16K -s 64M)
		dd if="$d" of=/dev/null bs=1M count=16 iflag=direct
		ublkctl del "$d"
		d=$(add_on "$path" -t null --max-io 32M -q 1 -d 4 -s 1G)
		dd if="$d" of=/dev/null bs=32M count=4 iflag=direct
		ublkctl del "$d"
	done
}
