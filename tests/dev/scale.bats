#!/usr/bin/env bats
# Many devices at once.

load common

@test "100 devices with default options are added, listed and deleted with --all" {
	for i in $(seq 100); do
		ublkctl add -t null >/dev/null
	done
	ublkctl list --json | jq -e '.devices | length == 100 and all(.state == "live") and ([.[].id] == [range(100)])'
	# I/O buffers are reserved, not used
	for p in $(pgrep ublkctl); do
		awk '/^VmRSS:/ { if ($2 > 6000) { print "RSS " $2 " kB"; exit 1 } }' "/proc/$p/status"
	done
	ublkctl del --all
	nothing_left
	ublkctl del --all
}
