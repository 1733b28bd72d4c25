#!/usr/bin/env bats
# dist/ublkctl@.service with the real systemd. A user's manager, run by root: it needs not be the first
# process of the machine, and handles services alike.
#
# shellcheck disable=SC2154 # set by bats and common.bash

load common

setup_file() {
	cd "$BATS_TEST_DIRNAME/../.." || return 1
	export XDG_RUNTIME_DIR=/run/manager SYSTEMD_UNIT_PATH=/run/units
	# as on a machine that was booted with it
	mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR" "$SYSTEMD_UNIT_PATH" /etc/ublkctl
	# a stop that is refused takes its timeout twice
	sed "s,/usr/local/sbin/ublkctl,$PWD/${BUILD:-build}/ublkctl,; s/^TimeoutStopSec=.*/TimeoutStopSec=6/" \
		dist/ublkctl@.service >"$SYSTEMD_UNIT_PATH/ublkctl@.service"
	printf '[Unit]\nDefaultDependencies=no\n' >"$SYSTEMD_UNIT_PATH/boot.target"
	/lib/systemd/systemd --user --unit=boot.target >/dev/null 2>&1 3>&- &
	export MANAGER=$!
	wait_for systemctl --user is-active --quiet boot.target
}

teardown_file() {
	kill -KILL "$MANAGER"
}

setup() {
	cd "$BATS_TEST_DIRNAME/../.." || return 1
	img=/dev/shm/backing
	truncate -s 64M "$img"
}

teardown() {
	! mountpoint -q /mnt || umount /mnt
	ublkctl del --all --force >/dev/null 2>&1
	systemctl --user reset-failed
	rm -f "$img" /etc/ublkctl/disk.conf
	wait_for nothing_left
}

# What systemd is to do with the device that has these options.
service() { # VERB [WORD...]
	[ $# -lt 2 ] || printf 'ARGS=%s --id 7\nID=7\n' "${*:2}" >/etc/ublkctl/disk.conf
	systemctl --user "$1" ublkctl@disk
}

unit_is() {
	[ "$(systemctl --user is-active ublkctl@disk)" = "$1" ]
}

@test "the unit is active with the device and is stopped with it" {
	service start -t file -f "$img" --recovery queue
	unit_is active
	[ -b /dev/ublkb7 ]
	[ "$(ublkctl list 7 --json | jq -c '.devices[0] | [.state, .backing, .recovery]')" = "[\"live\",\"$img\",\"queue\"]" ]
	[ "$(ublkctl list 7 --json | jq .devices[0].pid)" = "$(systemctl --user show -P MainPID ublkctl@disk)" ]
	dd if=/dev/ublkb7 of=/dev/null bs=4k count=4 iflag=direct status=none
	service stop
	[ ! -e /dev/ublkb7 ]
	unit_is inactive
	[ -z "$(ls /run/ublkctl)" ]
}

@test "a disk in use: stop fails, the server goes on, nothing is killed below a file system" {
	service start -t file -f "$img"
	mkfs.ext4 -q /dev/ublkb7
	mount /dev/ublkb7 /mnt
	service stop
	unit_is failed
	[ "$(ublkctl list 7 --json | jq -r .devices[0].state)" = live ]
	sh -c 'echo kept >/mnt/file && sync -f /mnt/file'
	umount /mnt
	ublkctl del 7
	[ ! -e /dev/ublkb7 ]
}

@test "what add refuses is in the unit's log, and leaves nothing" {
	run service start -t file -f "$BATS_TEST_TMPDIR/nothing"
	[ "$status" -ne 0 ]
	unit_is failed
	[ -z "$(ublkctl list --raw --noheadings)" ]
}

@test "restart hands the device to another server: the unit ends, the device stays" {
	linux_is 6.16 || skip "restart needs Linux 6.16, this is $(uname -r)"
	service start -t file -f "$img" --recovery queue
	ublkctl restart 7
	wait_for unit_is inactive
	dd if=/dev/ublkb7 of=/dev/null bs=4k count=4 iflag=direct status=none
	ublkctl del 7
}
