#!/usr/bin/env bats
# dist/ublkctl@.service with the real systemd, as the first process of a PID namespace.
#
# shellcheck disable=SC2154 # set by bats and common.bash

load common

units=/run/units

setup() {
	cd "$BATS_TEST_DIRNAME/../.." || return 1
	img=/dev/shm/backing
	truncate -s 64M "$img"
	mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
	mkdir -p "$units" /etc/ublkctl
	sed "s,/usr/local/sbin/ublkctl,$PWD/${BUILD:-build}/ublkctl," dist/ublkctl@.service >"$units/ublkctl@.service"
	printf '[Unit]\nDefaultDependencies=no\n' >"$units/boot.target"
	env -i container=test SYSTEMD_UNIT_PATH="$units" unshare -pmf --mount-proc --propagation slave --kill-child \
		/lib/systemd/systemd --system --unit=boot.target --log-target=console >"$BATS_TEST_TMPDIR/log" 2>&1 3>&- &
	outer=$!
	wait_for systemctl is-active --quiet boot.target
	first=$(pgrep -P "$outer")
}

teardown() {
	cat "$BATS_TEST_TMPDIR/log"
	! mountpoint -q /mnt || inside umount /mnt
	inside "$PWD/${BUILD:-build}/ublkctl" del --all --force >/dev/null 2>&1 || true
	kill -KILL "$first"
	wait "$outer" || true
	rm -f "$img" /etc/ublkctl/*.conf
	wait_for nothing_left
}

# Runs a program with the processes and mounts of that systemd.
inside() {
	nsenter -t "$first" -p -m --wd="$PWD" "$@"
}

ctl() {
	inside "$PWD/${BUILD:-build}/ublkctl" "$@"
}

unit_is() {
	[ "$(systemctl is-active ublkctl@disk)" = "$1" ]
}

@test "the unit is active with the device and is stopped with it" {
	printf 'ARGS=-t file -f %s --id 7 --recovery queue\nID=7\n' "$img" >/etc/ublkctl/disk.conf
	systemctl start ublkctl@disk
	systemctl is-active --quiet ublkctl@disk
	[ -b /dev/ublkb7 ]
	[ "$(ctl list 7 --json | jq -c '.devices[0] | [.state, .backing, .recovery]')" = "[\"live\",\"$img\",\"queue\"]" ]
	[ "$(ctl list 7 --json | jq .devices[0].pid)" = "$(systemctl show -P MainPID ublkctl@disk)" ]
	dd if=/dev/ublkb7 of=/dev/null bs=4k count=4 iflag=direct status=none
	systemctl stop ublkctl@disk
	[ ! -e /dev/ublkb7 ]
	unit_is inactive
	[ -z "$(ls /run/ublkctl)" ]
}

@test "a disk in use: stop fails, the server goes on, nothing is killed below a file system" {
	printf 'ARGS=-t file -f %s --id 7\nID=7\n' "$img" >/etc/ublkctl/disk.conf
	systemctl start ublkctl@disk
	inside mkfs.ext4 -q /dev/ublkb7
	inside mount /dev/ublkb7 /mnt
	systemctl stop ublkctl@disk || true
	unit_is failed
	[ "$(ctl list 7 --json | jq -r .devices[0].state)" = live ]
	inside sh -c 'echo kept >/mnt/file && sync -f /mnt/file'
	inside umount /mnt
	ctl del 7
	[ ! -e /dev/ublkb7 ]
}

@test "what add refuses is in the unit's log, and leaves nothing" {
	printf 'ARGS=-t file -f %s/nothing --id 7\nID=7\n' "$BATS_TEST_TMPDIR" >/etc/ublkctl/disk.conf
	run systemctl start ublkctl@disk
	[ "$status" -ne 0 ]
	unit_is failed
	[ -z "$(ctl list --raw --noheadings)" ]
}

@test "restart hands the device to another server: the unit ends, the device stays" {
	linux_is 6.16 || skip "restart needs Linux 6.16, this is $(uname -r)"
	printf 'ARGS=-t file -f %s --id 7 --recovery queue\nID=7\n' "$img" >/etc/ublkctl/disk.conf
	systemctl start ublkctl@disk
	ctl restart 7
	wait_for unit_is inactive
	dd if=/dev/ublkb7 of=/dev/null bs=4k count=4 iflag=direct status=none
	ctl del 7
}
