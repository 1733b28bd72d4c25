#!/usr/bin/env bats
# The matrix of the file target: data mode × I/O path × queues × kind of backing. Every cell writes at
# random, verifies, reads the whole device, and compares that with the backing once the device is gone.
# UBLKCTL_FULL=1 runs all cells, otherwise a slice with every mode, path and kind.
#
# shellcheck disable=SC2154,SC2034 # set by bats and common.bash, read by bats

load common
load backing

if full; then BATS_TEST_TIMEOUT=1200; fi

SIZE=$((32 << 20))

setup_file() {
	local kind
	for kind in $(backing_kinds); do
		backing_make_random "$kind" "$SIZE" >"$BATS_FILE_TMPDIR/$kind"
	done
}

teardown_file() {
	backing_drop_all
}

# "KIND QUEUES" of each cell to run; 4 queues become as many as the driver grants
cells() { # MODE PATH
	local kind
	if full; then
		for kind in $(backing_kinds); do printf '%s 1\n%s 4\n' "$kind" "$kind"; done
	else
		backing_slice "$1" "$2"
	fi
}

# Mixed sizes at random offsets, each block once, all read back.
fio_verify() { # DEVICE BYTES
	local seed=$((RANDOM << 15 | RANDOM))
	fio --clocksource=clock_gettime --name="seed-$seed" --randseed=$seed --filename="$1" --rw=randwrite \
		--bsrange=4k-1m --io_size="$2" --size="$SIZE" --ioengine=io_uring --iodepth=16 --direct=1 \
		--verify=crc32c --verify_fatal=1 --do_verify=1 --output-format=json \
		--output="$BATS_TEST_TMPDIR/fio.json"
}

run_cell() { # MODE PATH KIND QUEUES
	local backing device queues bytes
	echo "cell: $*"
	backing=$(cat "$BATS_FILE_TMPDIR/$3")
	queues=$(($4 < $(nproc) ? $4 : $(nproc)))
	bytes=$((SIZE / ($(full && echo 1 || echo 4))))
	device=$(add_on "$2" -t file -f "$backing" --data-mode "$1" -q "$queues")
	ublkctl list --json >"$BATS_TEST_TMPDIR/list.json"
	fio_verify "$device" "$bytes"
	dd if="$device" of="$BATS_TEST_TMPDIR/image" bs=1M iflag=direct status=none
	ublkctl del "$device"
	nothing_left
	[ "$(stat -c %s "$BATS_TEST_TMPDIR/image")" -eq "$SIZE" ]
	backing_equals "$BATS_TEST_TMPDIR/image" "$backing"
	jq -es --arg mode "$1" --arg path "$2" --arg backing "$backing" --argjson queues "$queues" \
		--argjson size "$SIZE" --argjson bytes "$bytes" '(.[0].devices[0] |
		.data_mode == $mode and .batch == ($path == "batch") and .queues == $queues and
		.backing == $backing and .target == "file" and .io == "direct" and .size == $size) and
		(.[1].jobs[0] | .error == 0 and .write.io_bytes > 0.9 * $bytes and .write.total_ios > 10 and
		.read.io_bytes == .write.io_bytes)' "$BATS_TEST_TMPDIR"/{list,fio}.json
}

run_cells() { # MODE PATH
	local kind queues count=0
	needs_mode "$1" "$2"
	while read -r kind queues; do
		run_cell "$1" "$2" "$kind" "$queues" </dev/null
		count=$((count + 1))
	done < <(cells "$1" "$2")
	[ "$count" -gt 0 ]
}

@test "copy, per-I/O path" { run_cells copy per-io; }
@test "copy, batch path" { run_cells copy batch; }
@test "get-data, per-I/O path" { run_cells get-data per-io; }
@test "user-copy, per-I/O path" { run_cells user-copy per-io; }
@test "user-copy, batch path" { run_cells user-copy batch; }
@test "zero-copy, per-I/O path" { run_cells zero-copy per-io; }
@test "zero-copy, batch path" { run_cells zero-copy batch; }
@test "auto-zc, per-I/O path" { run_cells auto-zc per-io; }
@test "auto-zc, batch path" { run_cells auto-zc batch; }
@test "auto-zc-fallback, per-I/O path" { run_cells auto-zc-fallback per-io; }
@test "auto-zc-fallback, batch path" { run_cells auto-zc-fallback batch; }
