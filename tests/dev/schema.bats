#!/usr/bin/env bats
# The JSON of all commands on a real driver against tests/schema.json.
#
# shellcheck disable=SC2154,SC2016 # set by bats and common.bash; expanded elsewhere

load common
load ../schema

@test "feature --json has the pinned keys and types" {
	ublkctl feature --json | fits feature
	ublkctl feature --json | jq -e '.mask | test("^0x[0-9a-f]+$")'
}

@test "list, show and stat --json have them, whatever the device is" {
	local words path
	truncate -s 8M "$BATS_TEST_TMPDIR/img"
	for path in $(paths); do
		for words in "-t null" "-t file -f $BATS_TEST_TMPDIR/img --affinity 0=0 --queue-attr nomerges=2"; do
			# shellcheck disable=SC2086 # words
			device=$(add_on "$path" $words)
			dd if="$device" of=/dev/null bs=4k count=4 status=none
			ublkctl list --json | fits list
			ublkctl show 0 --json | fits show
			ublkctl stat --json | fits stat
			kill -KILL "$(server_pid 0)"
			wait_for state_is 0 dead
			ublkctl list --json | fits list
			ublkctl show 0 --json | fits show
			ublkctl del 0
		done
	done
	ublkctl list --json | fits list
	ublkctl stat --json | fits stat
}

@test "bench --json has them" {
	truncate -s 8M "$BATS_TEST_TMPDIR/img"
	ublkctl bench --json --ios 100 --repeat 1 --modes copy | fits bench
	ublkctl bench --json --ios 100 --repeat 1 --modes copy -t file -f "$BATS_TEST_TMPDIR/img" --no-latency | fits bench
}
