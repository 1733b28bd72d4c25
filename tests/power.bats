#!/usr/bin/env bats
# A machine that loses its power: a guest writes records through devices of the file target, says which
# are acknowledged as durable, and is killed. Its disks must have all of these.
#
# shellcheck disable=SC2154 # set by bats

# 4 KiB that no other record has.
record() { # NUMBER
	yes "record $1" | head -c 4096
}

has_record() { # FILE NUMBER
	cmp -s -n 4096 <(record "$2") <(dd if="$1" bs=4k skip="$2" count=1 status=none)
}

# Runs in the guest, until the guest is killed. One device is a whole disk through the page cache of the
# server's side, the other a file in ext4. Prints "DISK NUMBER HOW".
guest_writes() {
	local ublkctl=$PWD/${BUILD:-build}/ublkctl n=0 how words device whole file
	whole=$("$ublkctl" add -t file -f /dev/vda --io buffered --data-mode best)
	mount /dev/vdb /mnt
	file=$("$ublkctl" add -t file -f /mnt/img --create -s 8M)
	while [ $n -lt 40 ]; do
		for how in fsync dsync; do
			n=$((n + 1))
			words=(oflag=direct "conv=$how")
			[ $how = fsync ] || words=("oflag=direct,dsync")
			for device in "$whole" "$file"; do
				record $n | dd of="$device" bs=4k seek=$n iflag=fullblock "${words[@]}" status=none || exit 1
				if [ "$device" = "$whole" ]; then echo "whole $n"; else echo "file $n"; fi
			done
		done
	done
	for n in 1001 1002 1003; do
		record $n | dd of="$whole" bs=4k seek=$n iflag=fullblock oflag=direct status=none || exit 1
	done
	echo end
	sleep 1000
}

# Runs in the next guest: the journal is replayed by mount. Prints what the file has.
guest_reads() { # NUMBER...
	local n
	mount /dev/vda /mnt || exit 1
	for n in "$@"; do
		if has_record /mnt/img "$n"; then echo "has $n"; else echo "lost $n"; fi
	done
	umount /mnt
	e2fsck -fn /dev/vda >/dev/null || echo "not clean"
}

setup() {
	cd "$BATS_TEST_DIRNAME/.." || return 1
	PATH=$PATH:/usr/sbin:/sbin
}

@test "power cut: every record that was acknowledged as durable is on the disk" {
	local whole=$BATS_TEST_TMPDIR/whole fs=$BATS_TEST_TMPDIR/fs out=$BATS_TEST_TMPDIR/out vm functions n
	truncate -s 16M "$whole"
	truncate -s 64M "$fs"
	mkfs.ext4 -q "$fs"
	functions=$(declare -f record has_record guest_writes guest_reads)
	tests/vm/run --timeout 120 --disk "$whole" --disk "$fs" -- \
		bash -c "$functions; BUILD='${BUILD:-build}'; guest_writes" >"$out" 2>&1 3>&- &
	vm=$!
	for ((n = 0; n < 1200; n++)); do
		if grep -qx end "$out" || ! kill -0 $vm; then break; fi
		sleep 0.1
	done
	# the emulator is killed outright: nothing in the guest gets a chance to write anything back
	kill -TERM $vm
	wait $vm || true
	cat "$out"
	grep -qx end "$out"
	[ "$(grep -c '^whole ' "$out")" -ge 40 ]
	[ "$(grep -c '^file ' "$out")" -ge 40 ]
	while read -r n; do has_record "$whole" "$n"; done < <(sed -n 's/^whole //p' "$out")
	# what nobody asked to be durable was in the guest's memory: the cut was one
	for n in 1001 1002 1003; do ! has_record "$whole" "$n" || return 1; done
	# shellcheck disable=SC2046 # a list of numbers
	run tests/vm/run --timeout 120 --disk "$fs" -- \
		bash -c "$functions; guest_reads \"\$@\"" guest $(sed -n 's/^file //p' "$out")
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c '^has ' <<<"$output")" -eq "$(grep -c '^file ' "$out")" ]
	[[ $output != *lost* && $output != *"not clean"* ]]
}
