#!/usr/bin/env bats
# Data modes: which are refused and why, which one "best" is, and that a read never shows what is not
# on the device.
#
# shellcheck disable=SC2154 # set by bats and common.bash

load common

ALL_MODES="copy get-data user-copy zero-copy auto-zc auto-zc-fallback"

setup() {
	cd "$BATS_TEST_DIRNAME/../.." || return 1
	img=$BATS_TEST_TMPDIR/img
	truncate -s 16M "$img"
}

mode_of() { # ID
	column "$1" MODE
}

@test "every mode that the driver has is taken as asked for, also by its short form" {
	local mode path words
	for mode in $ALL_MODES; do
		for path in per-io batch; do
			[ "$mode" != get-data ] || [ "$path" = per-io ] || continue
			has_mode "$mode" "$path" || continue
			add_on "$path" -t null --data-mode "$mode"
			[ "$(mode_of 0)" = "$mode" ]
			ublkctl del 0
		done
	done
	for words in "-u user-copy" "--user-copy user-copy" "-z zero-copy" "--zero-copy zero-copy" \
		"--auto-zc auto-zc"; do
		has_mode "${words#* }" per-io || continue
		ublkctl add -t null "${words% *}"
		[ "$(mode_of 0)" = "${words#* }" ]
		ublkctl del 0
	done
}

@test "a mode and the flags of the driver say the same" {
	local mode flag
	while read -r mode flag; do
		has_mode "$mode" per-io || continue
		ublkctl add -t null --data-mode "$mode"
		ublkctl list --json | jq -e --arg flag "$flag" '[.devices[0].flags[] |
			select(. == "UBLK_F_NEED_GET_DATA" or . == "UBLK_F_USER_COPY" or
				. == "UBLK_F_SUPPORT_ZERO_COPY" or . == "UBLK_F_AUTO_BUF_REG")] |
			sort | join("+") | . == $flag'
		ublkctl del 0
	done <<-'END'
		copy
		get-data UBLK_F_NEED_GET_DATA
		user-copy UBLK_F_USER_COPY
		zero-copy UBLK_F_SUPPORT_ZERO_COPY
		auto-zc UBLK_F_AUTO_BUF_REG
		auto-zc-fallback UBLK_F_AUTO_BUF_REG+UBLK_F_SUPPORT_ZERO_COPY
	END
}

@test "what the driver cannot do is refused by the name of the feature" {
	refused 2 "get-data" -t null -b --data-mode get-data
	refused 2 "get-data" -t file -f "$img" -b --data-mode get-data
	refused 2 "data mode" -t null -u -z
	refused 2 "data mode" -t null -u --data-mode copy
	refused 2 "--data-mode" -t null --data-mode fast
	refused 2 "--data-mode" -t null --data-mode ""
	if ! has_zero_copy; then
		refused 3 UBLK_F_SUPPORT_ZERO_COPY -t null -z
		refused 3 UBLK_F_SUPPORT_ZERO_COPY -t file -f "$img" --data-mode zero-copy
		refused 3 UBLK_F_AUTO_BUF_REG -t null --auto-zc
		refused 3 UBLK_F_ -t null --data-mode auto-zc-fallback
	fi
	nothing_left
}

@test "best is the mode with the fewest copies that there is, and it is shown" {
	for path in $(paths); do
		add_on "$path" -t file -f "$img" --data-mode best
		add_on "$path" -t null --data-mode best
		[ "$(mode_of 0)" = "$(if has_zero_copy; then echo auto-zc; else echo copy; fi)" ]
		[ "$(mode_of 1)" = copy ]
		dd if=/dev/ublkb0 of=/dev/null bs=64k count=4 iflag=direct status=none
		ublkctl del 0 1
	done
	# without a word about it the mode is copy
	ublkctl add -t file -f "$img"
	[ "$(mode_of 0)" = copy ]
	ublkctl del 0
}

@test "--null-data none: only in the zero-copy modes, said once, shown by list" {
	local mode
	for mode in copy get-data user-copy; do
		refused 2 "--null-data none" -t null --data-mode $mode --null-data none
	done
	refused 2 "--null-data" -t null --null-data ones
	has_zero_copy || skip "Linux $(uname -r) has no zero-copy mode"
	for mode in zero-copy auto-zc auto-zc-fallback; do
		run_split ublkctl add -t null --data-mode $mode --null-data none
		[ "$status" -eq 0 ]
		[ "$output" = /dev/ublkb0 ]
		[[ $err == *"--null-data none"* && $err != *$'\n'* ]]
		[ "$(ublkctl list --json | jq -r .devices[0].null_data)" = none ]
		dd if=/dev/ublkb0 of=/dev/null bs=64k count=4 iflag=direct status=none
		ublkctl del 0
		run_split ublkctl add -t null --data-mode $mode
		[ -z "$err" ]
		[ "$(ublkctl list --json | jq -r .devices[0].null_data)" = zeros ]
		ublkctl del 0
	done
}

# Few tags, so that each is used for a write and then for a read; then for both at the same time.
null_reads() { # MODE PATH
	local device bs writer random=$BATS_TEST_TMPDIR/random
	echo "reads: $*"
	device=$(add_on "$2" -t null --data-mode "$1" -d 4 -q 1 -s 16M)
	for bs in 4096 524288; do
		dd if="$random" of="$device" bs=$bs oflag=direct status=none
		cmp -n 1048576 <(dd if="$device" bs=$bs iflag=direct status=none) /dev/zero
	done
	for _ in 1 2 3 4 5 6 7 8; do cat "$random"; done |
		dd of="$device" bs=64k oflag=direct iflag=fullblock status=none 3>&- &
	writer=$!
	cmp -n 16777216 <(dd if="$device" bs=64k iflag=direct status=none) /dev/zero
	wait "$writer"
	ublkctl del "$device"
}

@test "reads of a null device right after random writes are zeros in every mode" {
	local mode path
	head -c 1M /dev/urandom >"$BATS_TEST_TMPDIR/random"
	for mode in $ALL_MODES; do
		for path in per-io batch; do
			[ "$mode" != get-data ] || [ "$path" = per-io ] || continue
			if has_mode "$mode" "$path"; then null_reads "$mode" "$path"; fi
		done
	done
}

@test "a read of a sparse file shows no memory of the kernel, in every mode" {
	local mode
	for mode in $ALL_MODES; do
		has_mode "$mode" per-io || continue
		device=$(ublkctl add -t file -f "$img" --data-mode "$mode" -d 4 -q 1 --read-only)
		cmp -n 4194304 <(dd if="$device" bs=1M count=4 iflag=direct status=none) /dev/zero
		cmp -n 4194304 -i 4194304 "$device" /dev/zero
		ublkctl del "$device"
	done
}
