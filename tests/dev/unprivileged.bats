#!/usr/bin/env bats
# Devices of normal users, with the udev rules of dist/ and a real udevd.
#
# shellcheck disable=SC2154 # set by bats and common.bash

load common

ME=65534
OTHER=65533

setup_file() {
	cd "$BATS_TEST_DIRNAME/../.." || return 1
	# below /root nobody else gets to it
	cp "${BUILD:-build}/ublkctl" /tmp/ublkctl
	mkdir -p /run/udev/rules.d
	cp dist/60-ublkctl.rules /run/udev/rules.d/
	sed "s#/usr/local/sbin/ublkctl#/tmp/ublkctl#" dist/61-ublkctl-unprivileged.rules \
		>/run/udev/rules.d/61-ublkctl-unprivileged.rules
	/lib/systemd/systemd-udevd --daemon
	udevadm control --reload
	udevadm trigger --action=add /sys/class/misc/ublk-control
	udevadm settle
}

teardown_file() {
	udevadm control --exit
	# what is left of it there makes dmsetup wait for it
	rm -rf /run/udev
	chmod 600 /dev/ublk-control
}

setup() {
	cd "$BATS_TEST_DIRNAME/../.." || return 1
	for id in $ME $OTHER; do
		mkdir -p "/tmp/run-$id"
		chown "$id" "/tmp/run-$id"
	done
}

as() { # UID WORD...
	setpriv --reuid "$1" --regid "$1" --clear-groups env "XDG_RUNTIME_DIR=/tmp/run-$1" "${@:2}"
}

me() {
	as $ME /tmp/ublkctl "$@"
}

other() {
	as $OTHER /tmp/ublkctl "$@"
}

@test "a normal user adds, lists, formats and deletes a device of his own" {
	local img=/tmp/run-$ME/img path device
	for path in $(paths); do
		as $ME truncate -s 32M "$img"
		words=()
		[ "$path" = per-io ] || words=(--batch)
		run_split me add -t file -f "$img" --unprivileged "${words[@]}"
		[ "$status" -eq 0 ]
		device=$output
		[ "$device" = /dev/ublkb0 ]
		wait_for owned "$device"
		[ "$(stat -c %u /dev/ublkc0)" -eq $ME ]
		me list --json >"$BATS_TEST_TMPDIR/json" 2>"$BATS_TEST_TMPDIR/err"
		jq -e ".devices[0] | .state == \"live\" and .target == \"file\" and .uid == $ME and
			.backing == \"$img\" and (.flags | index(\"UBLK_F_UNPRIVILEGED_DEV\") != null)" \
			"$BATS_TEST_TMPDIR/json"
		[ ! -s "$BATS_TEST_TMPDIR/err" ]
		as $ME "$(command -v mkfs.ext4)" -q "$device"
		as $ME "$(command -v fsck.ext4)" -fn "$device"
		as $ME dd if="$device" of=/dev/null bs=1M iflag=direct status=none
		# the server is his process
		[ "$(stat -c %u "/proc/$(server_pid 0)")" -eq $ME ]
		me del 0
		wait_for nothing_left
		[ -z "$(ls -A /tmp/run-$ME/ublkctl)" ]
	done
}

owned() { # DEVICE
	[ "$(stat -c %u "$1")" -eq $ME ]
}

@test "another user's device: no details, no deletion; root has both" {
	me add -t null --unprivileged
	run_split other list --json
	[ "$status" -eq 0 ]
	jq -e '.devices[0] | .id == 0 and .flags == null and .pid == null and .uid == null and
		.target == "unknown" and .backing == null' <<<"$output"
	run_split other del 0
	[ "$status" -eq 6 ]
	[ "$(wc -l <<<"$err")" -eq 1 ]
	run_split other del --force 0
	[ "$status" -eq 6 ]
	local words
	for words in "stop 0" "restart 0" "quiesce 0" "recover 0 --wait 1" "resize 0 1G" "start 0" "set-affinity 0 0=0"; do
		# shellcheck disable=SC2086 # words
		run_split other $words
		# an older driver has no resize for anybody
		if [ "$words" = "resize 0 1G" ] && ! linux_is 6.16; then [ "$status" -eq 3 ]; else [ "$status" -eq 6 ]; fi
		[ "$(wc -l <<<"$err")" -eq 1 ]
	done
	state_is 0 live
	ublkctl list 0 --json | jq -e ".devices[0].uid == $ME"
	ublkctl del 0
	wait_for nothing_left
	# and root's is not his
	ublkctl add -t null
	run_split me del 0
	[ "$status" -eq 6 ]
	state_is 0 live
}

@test "what the driver does not give to normal users is refused before anything is made" {
	local words
	for words in "-u" "--data-mode user-copy" "-z" "--auto-zc" "--data-mode auto-zc-fallback" "-r queue" "-r reissue"; do
		# shellcheck disable=SC2086 # words
		run_split me add -t null --unprivileged $words
		[ "$status" -eq 2 ]
		[[ $err == "ublkctl: add: --"*"not with --unprivileged"* && $err != *$'\n'* ]]
	done
	run_split ublkctl add -t null --unprivileged
	[ "$status" -eq 2 ]
	[[ $err == *"only for users other than root"* ]]
	run_split me add -t null
	[ "$status" -eq 6 ]
	[ -z "$(ls /sys/class/ublk-char)" ]
}

@test "the scheduler is left alone without a word, unless it was asked for" {
	local before
	run_split me add -t null --unprivileged
	[ "$status" -eq 0 ]
	[[ $err != *scheduler* ]]
	me del 0
	run_split me add -t null --unprivileged --scheduler none --queue-attr nomerges=2
	[ "$status" -eq 0 ]
	[[ $err == *"queue/scheduler is not set to none: Permission denied"* ]]
	[[ $err == *"queue/nomerges is not set to 2: Permission denied"* ]]
	before=$(queue_attr ublkb0 nomerges)
	[ "$before" = 0 ]
	me del 0
}

@test "kill -9 of a normal user's server: he can delete the rest" {
	me add -t null --unprivileged
	kill -KILL "$(server_pid 0)"
	wait_for state_is 0 dead
	me del 0
	wait_for nothing_left
}

@test "stop, start, resize and a forced delete by the owner" {
	local img=/tmp/run-$ME/img
	as $ME truncate -s 16M "$img"
	me add -t file -f "$img" --unprivileged
	me stop 0
	[ -z "$(ublkctl del --dead --dry-run)" ]
	me start 0
	if has_zero_copy; then
		me resize 0 32M
		[ "$(blockdev --getsize64 /dev/ublkb0)" -eq $((32 << 20)) ]
	fi
	me show 0 --json | jq -e ".device.uid == $ME and .device.record.trusted"
	# his own: he cannot see others' files
	setpriv --reuid $ME --regid $ME --clear-groups sleep 60 </dev/ublkb0 3>&- &
	opener=$!
	wait_for fuser -s /dev/ublkb0
	run_split me del 0
	[ "$status" -eq 5 ]
	# and does not take its time to say so
	run_split as $ME timeout 30 /tmp/ublkctl stop --force 0 --timeout 120
	[ "$status" -eq 0 ]
	run_split me del --force 0 --timeout 10
	[ "$status" -eq 0 ]
	kill "$opener"
	wait "$opener" || true
	wait_for nothing_left
}

@test "without the rules an add says which are missing and leaves nothing" {
	mv /run/udev/rules.d/61-ublkctl-unprivileged.rules /run/udev/kept
	udevadm control --reload
	run_split me add -t null --unprivileged --timeout 3
	mv /run/udev/kept /run/udev/rules.d/61-ublkctl-unprivileged.rules
	udevadm control --reload
	[ "$status" -eq 6 ]
	[[ $err == *"61-ublkctl-unprivileged.rules"* ]]
	ublkctl del --all
	wait_for nothing_left
}

@test "SIGTERM: the server of a normal user deletes its device" {
	me add -t null --unprivileged
	kill -TERM "$(server_pid 0)"
	wait_for nothing_left
	[ -z "$(ls -A /tmp/run-$ME/ublkctl)" ]
}
