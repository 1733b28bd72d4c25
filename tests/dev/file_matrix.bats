#!/usr/bin/env bats
# The matrix of the file target: data mode × I/O path × queues × kind of backing. Every cell writes at
# random and verifies, then keeps many operations of all kinds in flight against a model of the device,
# and compares what the device must hold with the backing once the device is gone.
#
# UBLKCTL_FULL=1 runs all cells, otherwise a slice with every mode, path, kind and number of queues.
#
# shellcheck disable=SC2154,SC2034 # set by bats and common.bash, read by bats

load common
load backing

SIZE=$(($(full && echo 32 || echo 16) << 20))

setup_file() {
	local kind
	for kind in $(backing_kinds); do
		backing_make_full "$kind" "$SIZE" >"$BATS_FILE_TMPDIR/$kind"
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
		awk -v mode="$1" -v path="$2" '$1 == mode && $2 == path { print $3, $4 }' <<'END'
copy              per-io  tmpfs     4
copy              batch   ext4      1
get-data          per-io  xfs       4
user-copy         per-io  loop      1
user-copy         batch   null_blk  4
zero-copy         per-io  dm        1
zero-copy         batch   ext4      4
auto-zc           per-io  loop      4
auto-zc           batch   dm        4
auto-zc-fallback  per-io  xfs       1
auto-zc-fallback  batch   null_blk  1
END
	fi
}

# Mixed sizes at random offsets, each block once, all read back.
fio_verify() { # DEVICE BYTES
	local seed=$((RANDOM << 15 | RANDOM))
	fio --clocksource=clock_gettime --name="seed-$seed" --randseed=$seed --filename="$1" --rw=randwrite \
		--bssplit=4k/40:16k/20:64k/20:256k/10:1m/10 --io_size="$2" --size="$SIZE" --ioengine=io_uring --iodepth=16 --direct=1 \
		--verify=crc32c --verify_fatal=1 --do_verify=1 --output-format=json \
		--output="$BATS_TEST_TMPDIR/fio.json"
}

# The model of what the device must hold goes to "image", which it was compared with at the end.
stress_verify() { # KIND DEVICE OPS UNMAPS
	local align=() max=256K
	if full; then max=1M; fi
	# null_blk in memory loses data of buffers that it allows, those not aligned to sectors
	if [ "$1" = null_blk ]; then align=(--align 512); fi
	stress --ops "$3" --max "$(numfmt --from=iec "$max")" --discard-zeroes "${align[@]}" \
		--image "$BATS_TEST_TMPDIR/image" "$2" | tee "$BATS_TEST_TMPDIR/counts"
	[ "${PIPESTATUS[0]}" -eq 0 ]
	# everything that the backing can do was asked of the device
	awk -v ops="$3" -v unmap="$4" '$1 != "seed" { sum += $2; count[$1] = $2 }
		END { exit !(sum == ops && count["read"] && count["write"] && count["fua-write"] &&
			count["flush"] && count["zero"] && count["discard"] &&
			(count["zero-unmap"] > 0) == (unmap == "yes")) }' "$BATS_TEST_TMPDIR/counts"
}

# Does a backing write zeros by unmapping? "yes" or "no". A loop device may find out that it does not.
unmaps() { # KIND BACKING
	local max=0
	case $1 in
	ext4 | xfs) max=1 ;;
	loop | null_blk | dm) max=$(<"/sys/dev/block/$(stat -Lc %Hr:%Lr "$2")/queue/write_zeroes_max_bytes") ;;
	esac
	if [ "$max" -gt 0 ]; then echo yes; else echo no; fi
}

# Operations of the stress in one cell: 10,000 for each mode and path.
nr_ops() { # KIND QUEUES
	if ! full; then echo 2000; elif [ "$1" = ext4 ] && [ "$2" = 4 ]; then echo 10000; else echo 1000; fi
}

run_cell() { # MODE PATH KIND QUEUES OPTION...
	local backing device queues bytes unmaps
	echo "cell: $*"
	backing=$(<"$BATS_FILE_TMPDIR/$3")
	queues=$(($4 < $(nproc) ? $4 : $(nproc)))
	bytes=$((SIZE / ($(full && echo 1 || echo 4))))
	unmaps=$(unmaps "$3" "$backing")
	device=$(add_on "$2" -t file -f "$backing" --data-mode "$1" -q "$queues" "${@:5}")
	ublkctl list --json >"$BATS_TEST_TMPDIR/list.json"
	fio_verify "$device" "$bytes"
	stress_verify "$3" "$device" "$(nr_ops "$3" "$4")" "$unmaps"
	ublkctl del "$device"
	nothing_left
	[ "$(stat -c %s "$BATS_TEST_TMPDIR/image")" -eq "$SIZE" ]
	backing_equals "$BATS_TEST_TMPDIR/image" "$backing"
	jq -es --arg mode "$1" --arg path "$2" --arg backing "$backing" --argjson queues "$queues" \
		--argjson size "$SIZE" --argjson bytes "$bytes" '(.[0].devices[0] |
		.data_mode == $mode and .batch == ($path == "batch") and .queues == $queues and
		.backing == $backing and .target == "file" and .io == "direct" and .size == $size) and
		(.[1].jobs[0] | .error == 0 and .write.io_bytes >= $bytes and .write.total_ios >= 4 and
		.read.io_bytes == .write.io_bytes)' "$BATS_TEST_TMPDIR"/{list,fio}.json
}

run_cells() { # MODE PATH
	local kind queues count=0
	needs_mode "$1" "$2"
	while read -r kind queues; do
		run_cell "$1" "$2" "$kind" "$queues" </dev/null
		count=$((count + 1))
	done < <(cells "$1" "$2")
	[ "$count" -eq "$(full && echo 12 || echo 1)" ]
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

# One cell for each option that changes how I/O is served: MODE PATH KIND QUEUES OPTION...; a row with + is
# in the slice
option_cells() {
	cat <<'END'
  copy       per-io  loop      4  --poll 500
  auto-zc    batch   ext4      4  --poll 500
  copy       batch   null_blk  1  --hugepages
  user-copy  per-io  xfs       4  --hugepages -d 64
  copy       batch   dm        1  --mlock -d 64
  zero-copy  batch   loop      4  --affinity 0=1
  copy       per-io  ext4      1  --scheduler mq-deadline
  auto-zc    per-io  null_blk  4  --queue-attr nomerges=2,rq_affinity=2,iostats=0
  copy       per-io  tmpfs     1  --max-io 4M
+ copy       batch   xfs       4  --poll 500 --hugepages --mlock --affinity 0=1 --scheduler mq-deadline --queue-attr nomerges=2 --max-io 2M -d 32
END
}

@test "with the options of the I/O path" {
	local mode path kind queues words count=0
	# 64 MiB for a queue: what depth and size of a request of each row need at most
	echo $((32 * $(nproc))) >/proc/sys/vm/nr_hugepages
	[ "$(</proc/sys/vm/nr_hugepages)" -eq $((32 * $(nproc))) ]
	while read -r mode path kind queues words; do
		# an older driver has less, but the option is of use all the same
		has_mode "$mode" "$path" || mode=copy path=per-io
		# shellcheck disable=SC2086 # words
		run_cell "$mode" "$path" "$kind" "$queues" $words </dev/null
		[[ $words != *--hugepages* ]] || [ "$(jq -r .devices[0].hugepages "$BATS_TEST_TMPDIR/list.json")" = reserved ]
		count=$((count + 1))
	done < <(option_cells | if full; then sed 's/^[ +] //'; else sed -n 's/^+ //p'; fi)
	echo 0 >/proc/sys/vm/nr_hugepages
	[ "$count" -eq "$(full && echo 10 || echo 1)" ]
}

@test "the stress itself: one changed byte in a write is found" {
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
