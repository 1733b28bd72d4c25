#!/usr/bin/env bats
# File systems on devices with a backing of each kind: made, filled, looked at again, checked, and
# checked once more on the backing when the device is gone. UBLKCTL_FULL=1 runs all rows.
#
# shellcheck disable=SC2154,SC2034 # set by bats and common.bash, read by bats

load common
load backing

SIZE=$((320 << 20)) # the smallest xfs has 300 MiB

# KIND TYPE MODE PATH; a row with + is in the slice
rows() {
	cat <<'END'
  tmpfs     ext4  zero-copy         per-io
+ tmpfs     xfs   copy              batch
  ext4      ext4  auto-zc           batch
  ext4      xfs   user-copy         per-io
  xfs       ext4  copy              per-io
+ xfs       xfs   zero-copy         batch
+ loop      ext4  auto-zc-fallback  batch
  loop      xfs   auto-zc           per-io
  null_blk  ext4  get-data          per-io
  null_blk  xfs   user-copy         batch
+ dm        ext4  zero-copy         batch
  dm        xfs   auto-zc-fallback  per-io
END
}

teardown_file() {
	backing_drop_all
}

check_fs() { # TYPE DEVICE-OR-FILE
	case $1 in
	ext4) e2fsck -fn "$2" ;;
	xfs) if [ -b "$2" ]; then xfs_repair -n "$2"; else xfs_repair -nf "$2"; fi ;;
	esac
}

run_row() { # KIND TYPE MODE PATH
	local backing device mode=$3 path=$4
	# an old driver has less, but the row is of use all the same
	has_mode "$mode" "$path" || mode=user-copy path=per-io
	echo "row: $1 $2 $mode $path"
	backing=$(backing_make "$1" "$SIZE")
	device=$(add_on "$path" -t file -f "$backing" --data-mode "$mode")
	mkfs."$2" -q "$device"
	mount "$device" /mnt
	cp -a cli man "${BUILD:-build}/ublkctl" /mnt
	umount /mnt
	mount "$device" /mnt
	for name in cli man; do diff -r --no-dereference "$name" "/mnt/$name"; done
	cmp "${BUILD:-build}/ublkctl" /mnt/ublkctl
	umount /mnt
	check_fs "$2" "$device"
	ublkctl del "$device"
	nothing_left
	check_fs "$2" "$backing"
	backing_drop "$1"
}

run_rows() { # TYPE
	local mark kind type mode path count=0
	while read -r mark kind type mode path; do
		run_row "$kind" "$type" "$mode" "$path" </dev/null
		count=$((count + 1))
	done < <(rows | sed 's/^ /-/' | awk -v type="$1" -v full="$(full && echo 1)" \
		'$3 == type && (full || $1 == "+")')
	[ "$count" -eq "$(full && echo 6 || echo 2)" ]
}

@test "ext4 on devices with a backing of each kind" { run_rows ext4; }
@test "xfs on devices with a backing of each kind" { run_rows xfs; }
