# shellcheck shell=bash
# Backings of the file target: one of each kind. Runs in the guest, as root.

BACKINGS=/tmp/backings

# There may be no udevd: dmsetup makes its nodes itself.
export DM_DISABLE_UDEV=1

# All kinds; each has other limits: tmpfs has no direct I/O of its own and cannot zero a range, ext4
# and xfs have all of it, the loop device has sectors of 4 KiB, null_blk no write-zeroes, and the dm
# device splits requests where its two parts meet.
backing_kinds() {
	echo tmpfs ext4 xfs loop null_blk dm
}

# Makes a backing of SIZE bytes (a multiple of 2 MiB) and prints its path; one of that kind goes before.
backing_make() { # KIND SIZE
	local dir=$BACKINGS/$1
	[ ! -d "$dir" ] || backing_drop "$1"
	mkdir -p "$dir"
	case $1 in
	tmpfs)
		truncate -s "$2" "$dir/img"
		echo "$dir/img"
		;;
	ext4 | xfs)
		backing_fs "$1" $(($2 + $2 / 8 + (80 << 20)))
		truncate -s "$2" "$dir/mnt/img"
		echo "$dir/mnt/img"
		;;
	loop)
		truncate -s "$2" "$dir/img"
		modprobe loop
		losetup --show -f -b 4096 "$dir/img"
		;;
	null_blk) null_blk_make nullb-backing "$2" ;;
	dm)
		dm_swapped "$(null_blk_make nullb-below "$2")" $(($2 / 1024)) >"$dir/table"
		dmsetup create backing "$dir/table"
		echo /dev/mapper/backing
		;;
	esac
}

backing_drop() { # KIND
	local dir=$BACKINGS/$1
	case $1 in
	ext4 | xfs) umount "$dir/mnt" ;;
	loop) losetup -j "$dir/img" -O NAME --noheadings | xargs -r -n 1 losetup -d ;;
	null_blk) null_blk_drop nullb-backing ;;
	dm)
		dmsetup remove --retry backing
		null_blk_drop nullb-below
		;;
	esac
	rm -rf "$dir"
}

# As before, full of data; random data without repetition takes long.
backing_make_full() { # KIND SIZE
	local path i
	path=$(backing_make "$1" "$2")
	[ -e "$BACKINGS/data" ] || head -c 1000001 /dev/urandom >"$BACKINGS/data"
	for ((i = 0; i <= $2 / 1000001; i++)); do cat "$BACKINGS/data"; done 2>/dev/null |
		dd of="$path" bs=1M count="$2" iflag=count_bytes,fullblock conv=notrunc,fsync status=none
	echo "$path"
}

backing_drop_all() {
	local kind
	for kind in $(backing_kinds); do
		[ ! -d "$BACKINGS/$kind" ] || backing_drop "$kind"
	done
}

# The program of tests/stress.
stress() {
	"$PWD/${BUILD:-build}/tests/stress/stress" "$@"
}

backing_equals() { # IMAGE BACKING
	if [ -b "$2" ]; then blockdev --flushbufs "$2"; fi
	cmp "$1" "$2"
}

# A file system of its own in $BACKINGS/TYPE/mnt; the smallest xfs has 300 MiB.
backing_fs() { # TYPE SIZE [MKFS-OPTION]...
	local dir=$BACKINGS/$1 size=$2
	[ "$1" != xfs ] || [ "$size" -ge $((320 << 20)) ] || size=$((320 << 20))
	modprobe loop
	mkdir -p "$dir/mnt"
	if mountpoint -q "$dir/mnt"; then umount "$dir/mnt"; fi
	truncate -s "$size" "$dir/fs"
	mkfs."$1" -q "${@:3}" "$dir/fs"
	mount -o loop "$dir/fs" "$dir/mnt"
}

# A block device in memory that forgets what is discarded. Prints its path.
null_blk_make() { # NAME SIZE [ATTRIBUTE=VALUE]...
	local dir=/sys/kernel/config/nullb/$1 set
	modprobe null_blk nr_devices=0
	mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
	[ ! -d "$dir" ] || null_blk_drop "$1"
	mkdir "$dir"
	for set in memory_backed=1 discard=1 "size=$(($2 >> 20))" "${@:3}" power=1; do
		echo "${set#*=}" >"$dir/${set%%=*}"
	done
	echo "/dev/$1"
}

null_blk_drop() { # NAME
	rmdir "/sys/kernel/config/nullb/$1"
}

# A dm table: the second half of a device in front of the first.
dm_swapped() { # DEVICE SECTORS-OF-A-HALF
	modprobe dm_mod
	echo "0 $2 linear $1 $2"
	echo "$2 $2 linear $1 0"
}
