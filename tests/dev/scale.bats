#!/usr/bin/env bats
# Many devices at once.

# shellcheck disable=SC2154 # set by common.bash
load common

@test "100 devices with default options are added, listed and deleted with --all" {
	local pids=() each=25
	# a sanitizer's own memory in 200 processes would be more than the guest has
	if [[ ${BUILD:-build} == build-* ]]; then each=5; fi
	for _ in 1 2 3 4; do
		(for _ in $(seq $each); do ublkctl add -t null; done) >/dev/null 3>&- &
		pids+=($!)
	done
	for p in "${pids[@]}"; do wait "$p"; done
	ublkctl list --json | jq -e --argjson n $((4 * each)) '.devices | length == $n and all(.state == "live") and ([.[].id] == [range($n)])'
	# I/O buffers are reserved, not used
	if [ $each -eq 5 ]; then
		ublkctl del --all
		nothing_left
		return
	fi
	for p in $(pgrep ublkctl); do
		awk '/^VmRSS:/ { if ($2 > 6000) { print "RSS " $2 " kB"; exit 1 } }' "/proc/$p/status"
	done
	ublkctl del --all
	nothing_left
	ublkctl del --all
}
