#!/usr/bin/env bats
# Data integrity under load: tests/stress against every data mode on both I/O paths; what it says the
# device must hold is then compared with the backing. UBLKCTL_FULL=1: more operations and backings.
#
# shellcheck disable=SC2154,SC2034 # set by bats and common.bash, read by bats

load common
load backing

if full; then BATS_TEST_TIMEOUT=1200; fi

SIZE=$(($(full && echo 32 || echo 16) << 20))

stress() {
	"$PWD/${BUILD:-build}/tests/stress/stress" "$@"
}

teardown_file() {
	backing_drop_all
}

# What the kind can do is done by the device, and the counts add up.
check_counts() { # KIND OPS
	cat "$BATS_TEST_TMPDIR/counts"
	awk -v kind="$1" -v ops="$2" '
		$1 != "seed" { sum += $2; count[$1] = $2 }
		END {
			unmap = kind == "ext4" || kind == "xfs" || kind == "loop"
			exit !(sum == ops && count["read"] && count["write"] && count["fua-write"] &&
				count["flush"] && count["zero"] && count["discard"] &&
				(count["zero-unmap"] > 0) == unmap)
		}' "$BATS_TEST_TMPDIR/counts"
}

run_one() { # MODE PATH KIND QUEUES
	local backing device ops max align=()
	echo "stress: $*"
	if full; then ops=10000 max=$((1 << 20)); else ops=2000 max=$((256 << 10)); fi
	# null_blk in memory loses data of buffers that it allows, those not aligned to sectors
	[ "$3" != null_blk ] || align=(--align 512)
	backing=$(backing_make_random "$3" "$SIZE")
	device=$(add_on "$2" -t file -f "$backing" --data-mode "$1" \
		-q $(($4 < $(nproc) ? $4 : $(nproc))))
	stress --ops "$ops" --max "$max" --discard-zeroes "${align[@]}" --image "$BATS_TEST_TMPDIR/model" "$device" \
		>"$BATS_TEST_TMPDIR/counts" || {
		cat "$BATS_TEST_TMPDIR/counts"
		false
	}
	check_counts "$3" "$ops"
	ublkctl del "$device"
	nothing_left
	backing_equals "$BATS_TEST_TMPDIR/model" "$backing"
	backing_drop "$3"
}

run_all() { # MODE PATH
	local kind queues count=0
	needs_mode "$1" "$2"
	while read -r kind queues; do
		run_one "$1" "$2" "$kind" "$queues" </dev/null
		count=$((count + 1))
	done < <(if full; then printf '%s 4\n' tmpfs ext4 loop; else backing_slice "$1" "$2"; fi)
	[ "$count" -gt 0 ]
}

@test "stress: copy, per-I/O path" { run_all copy per-io; }
@test "stress: copy, batch path" { run_all copy batch; }
@test "stress: get-data, per-I/O path" { run_all get-data per-io; }
@test "stress: user-copy, per-I/O path" { run_all user-copy per-io; }
@test "stress: user-copy, batch path" { run_all user-copy batch; }
@test "stress: zero-copy, per-I/O path" { run_all zero-copy per-io; }
@test "stress: zero-copy, batch path" { run_all zero-copy batch; }
@test "stress: auto-zc, per-I/O path" { run_all auto-zc per-io; }
@test "stress: auto-zc, batch path" { run_all auto-zc batch; }
@test "stress: auto-zc-fallback, per-I/O path" { run_all auto-zc-fallback per-io; }
@test "stress: auto-zc-fallback, batch path" { run_all auto-zc-fallback batch; }

@test "stress itself: one changed byte of a write is found" {
	disk=$(null_blk_make nullb-flaky "$SIZE" discard=0)
	modprobe dm_flakey
	dmsetup create flaky --table "0 $((SIZE / 512)) flakey $disk 0 0 1000 5 corrupt_bio_byte 100 w 7 0"
	run_split stress --ops 500 --align 512 /dev/mapper/flaky
	dmsetup remove --retry flaky
	[ "$status" -eq 1 ]
	[[ $err == *difference:*offset* ]]
	# and without the fault there is none
	stress --ops 500 --align 512 "$disk"
	null_blk_drop nullb-flaky
}
