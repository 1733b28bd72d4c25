#!/usr/bin/env bats
# add --poll and --hugepages: the data stays right, they do what they say, and new servers keep them.
#
# shellcheck disable=SC2154 # set by bats and common.bash

load common

THP=/sys/kernel/mm/transparent_hugepage/enabled

setup_file() {
	head -c 8M /dev/urandom >/dev/shm/data
}

teardown_file() {
	rm -f /dev/shm/data
}

setup() {
	cd "$BATS_TEST_DIRNAME/../.." || return 1
	img=$BATS_TEST_TMPDIR/img
	truncate -s 8M "$img"
	thp=$(sed 's/.*\[\(.*\)\].*/\1/' $THP)
}

teardown() {
	ublkctl del --all --force >/dev/null 2>&1
	echo 0 >/proc/sys/vm/nr_hugepages
	echo "$thp" >$THP
	rm -f /dev/shm/img
}

reserve() { # HUGE PAGES
	echo "$1" >/proc/sys/vm/nr_hugepages
	[ "$(meminfo HugePages_Total)" -ge "$1" ]
}

meminfo() { # FIELD
	awk -v field="$1:" '$1 == field { print $2 }' /proc/meminfo
}

# KiB of all mappings of a server
smaps() { # FIELD
	awk -v field="$1:" '$1 == field { sum += $2 } END { print sum + 0 }' "/proc/$(server_pid 0)/smaps"
}

# Times that the I/O thread of queue 0 went to sleep, as the kernel counts them.
sleeps() {
	local dir
	for dir in "/proc/$(server_pid 0)"/task/*; do
		if [ "$(<"$dir/comm")" = ublk0.0 ]; then
			awk '$1 == "voluntary_ctxt_switches:" { print $2 }' "$dir/status"
		fi
	done
}

wakeups() {
	ublkctl stat 0 --raw --noheadings -o WAKEUPS
}

# Everything written and read, with requests as large as they can be and small ones.
use() { # DEVICE
	dd if=/dev/shm/data of="$1" bs=1M oflag=direct status=none
	cmp /dev/shm/data "$1"
	dd if="$1" bs=4k count=300 iflag=direct status=none | cmp -n $((300 * 4096)) /dev/shm/data -
}

shown() { # POLL HUGEPAGES
	[ "$(column 0 POLL)" = "$1" ]
	[ "$(column 0 HUGEPAGES)" = "$2" ]
}

@test "wrong values are wrong usage" {
	local word
	for word in '' -1 1.5 10001 4294967297 '5 ' 5us; do
		refused 2 "--poll: " -t null --poll "$word"
	done
	refused 2 --hugepages -t null --hugepages=1
}

@test "both, on both paths and with every way to move data: the backing holds what was written" {
	local path mode device
	reserve 8
	for path in $(paths); do
		for mode in copy get-data user-copy zero-copy auto-zc; do
			if ! has_mode $mode "$path" || [ "$path:$mode" = batch:get-data ]; then continue; fi
			echo "cell: $path $mode"
			head -c 8M /dev/zero >"$img"
			device=$(add_on "$path" -t file -f "$img" -q 1 -d 16 --max-io 1M --data-mode $mode \
				--poll 200 --hugepages 2>"$BATS_TEST_TMPDIR/err")
			use "$device"
			case $mode in
			*zc | zero-copy)
				shown 200 none
				grep -q "no huge pages: in the $mode mode" "$BATS_TEST_TMPDIR/err"
				;;
			*)
				shown 200 reserved
				[ ! -s "$BATS_TEST_TMPDIR/err" ]
				;;
			esac
			ublkctl del 0
			cmp /dev/shm/data "$img"
		done
	done
	nothing_left
	[ "$(meminfo HugePages_Free)" -eq "$(meminfo HugePages_Total)" ]
}

@test "they are shown; without them it is 0 and null" {
	ublkctl add -t null -q 1
	ublkctl list 0 --json | jq -e '.devices[0] | .poll_us == 0 and .hugepages == null'
	ublkctl del 0
	echo always >$THP
	ublkctl add -t null -q 1 --poll 10000 --hugepages --json |
		jq -e '.devices[0] | .poll_us == 10000 and .hugepages == "transparent"'
	ublkctl show 0 --json | jq -e '.device | .poll_us == 10000 and .hugepages == "transparent"'
	ublkctl show 0 | grep -qE '^poll us: +10000$'
	ublkctl show 0 | grep -qE '^hugepages: +transparent$'
	ublkctl del 0
}

@test "recover, restart, stop and start keep them" {
	local path device
	reserve 16
	for path in $(some_paths); do
		device=$(add_on "$path" -t file -f "$img" -q 1 -d 16 --max-io 1M --poll 300 --hugepages -r reissue)
		again() { # COMMAND...
			"$@"
			shown 300 reserved
			[ "$(smaps Private_Hugetlb)" -eq 16384 ]
			use "$device"
		}
		kill -KILL "$(server_pid 0)"
		again ublkctl recover 0
		if linux_is 6.16; then again ublkctl restart 0; fi
		ublkctl stop 0
		[ "$(meminfo HugePages_Free)" -eq "$(meminfo HugePages_Total)" ]
		again ublkctl start 0
		# what is to be had now is what counts
		echo 0 >/proc/sys/vm/nr_hugepages
		kill -KILL "$(server_pid 0)"
		ublkctl recover 0
		shown 300 transparent
		use "$device"
		ublkctl del 0
		reserve 16
	done
}

@test "a record without them, of an older ublkctl, is good for recover" {
	local device
	device=$(ublkctl add -t file -f "$img" -q 1 -r reissue)
	jq 'del(.poll_us, .hugepages)' /run/ublkctl/0.json >"$BATS_TEST_TMPDIR/old"
	cat "$BATS_TEST_TMPDIR/old" >/run/ublkctl/0.json
	kill -KILL "$(server_pid 0)"
	ublkctl recover 0
	ublkctl list 0 --json | jq -e '.devices[0] | .poll_us == 0 and .hugepages == null'
	use "$device"
	ublkctl del 0
}

@test "--poll: the same requests with fewer wake-ups, and sleep when there is nothing to do" {
	local path device poll woken=() slept=() before
	for path in $(some_paths); do
		for poll in 0 10000; do
			device=$(add_on "$path" -t null -q 1 --poll $poll)
			woken[poll]=$(wakeups) slept[poll]=$(sleeps)
			# one at a time: without --poll, each needs the thread woken up
			dd if="$device" of=/dev/null bs=4k count=2000 iflag=direct status=none
			woken[poll]=$(($(wakeups) - woken[poll]))
			slept[poll]=$(($(sleeps) - slept[poll]))
			# idle: it sleeps, and stays asleep
			sleep 0.2
			before=$(sleeps)
			sleep 1
			[ $(($(sleeps) - before)) -le 2 ]
			ublkctl del 0
		done
		echo "$path: wake-ups ${woken[0]} ${woken[10000]}, sleeps ${slept[0]} ${slept[10000]}"
		[ "${woken[0]}" -ge 1500 ]
		[ "${woken[10000]}" -lt $((woken[0] / 2)) ]
		[ "${slept[10000]}" -lt $((slept[0] / 2)) ]
	done
}

@test "--poll: a thread that looks takes part in recover, restart, quiesce and del at once" {
	local path device i
	for path in $(some_paths); do
		device=$(add_on "$path" -t null -q 1 --poll 10000 -r reissue)
		for ((i = 0; i < 3; i++)); do
			dd if="$device" of=/dev/null bs=4k count=100000 iflag=direct status=none 3>&- &
			if linux_is 6.16; then ublkctl restart 0; fi
			kill -KILL "$(server_pid 0)"
			ublkctl recover 0
			# on 6.12 a read in the moment of the kill was seen to fail
			if linux_is 6.16; then kill $!; else kill $! || true; fi
			wait $! || true
		done
		dd if="$device" of=/dev/null bs=4k count=100 iflag=direct status=none
		ublkctl del 0
		nothing_left
	done
}

@test "--hugepages: reserved ones, if there are enough for a queue, are there from the start" {
	local words
	reserve 8
	for words in "" --mlock; do
		# shellcheck disable=SC2086 # words
		ublkctl add -t null -q 1 -d 16 --max-io 1M --hugepages $words
		[ "$(smaps Private_Hugetlb)" -eq 16384 ]
		[ "$(meminfo HugePages_Free)" -eq 0 ]
		shown 0 reserved
		ublkctl del 0
		[ "$(meminfo HugePages_Free)" -eq 8 ]
	done
	# 17 MiB: one page too many
	ublkctl add -t null -q 1 -d 17 --max-io 1M --hugepages
	[ "$(smaps Private_Hugetlb)" -eq 0 ]
	shown 0 transparent
	ublkctl del 0
	# the lowest counts
	if [ "$(nproc)" -ge 2 ]; then
		ublkctl add -t null -q 2 -d 16 --max-io 1M --hugepages
		[ "$(smaps Private_Hugetlb)" -eq 16384 ]
		shown 0 transparent
		ublkctl del 0
	fi
}

@test "--hugepages: transparent ones come when they are used, with --mlock at once" {
	local device path
	echo madvise >$THP
	for path in $(some_paths); do
		device=$(add_on "$path" -t file -f "$img" -q 1 -d 16 --max-io 1M --hugepages)
		shown 0 transparent
		[ "$(smaps AnonHugePages)" -eq 0 ] || [ "$(smaps AnonHugePages)" -lt 16384 ]
		use "$device"
		[ "$(smaps AnonHugePages)" -ge 2048 ]
		ublkctl del 0
		device=$(add_on "$path" -t file -f "$img" -q 1 -d 16 --max-io 1M --hugepages --mlock)
		if ! is_sanitized; then
			[ "$(smaps AnonHugePages)" -eq 16384 ]
			[ "$(smaps Locked)" -ge 16384 ]
		fi
		use "$device"
		ublkctl del 0
	done
}

@test "--hugepages where there are none: one note, and the device serves" {
	local path
	echo never >$THP
	for path in $(some_paths); do
		run_split add_on "$path" -t file -f "$img" -q 1 -d 16 --hugepages
		[ "$status" -eq 0 ]
		[ "$output" = /dev/ublkb0 ]
		[[ $err == "ublkctl: add: "*"no huge pages for I/O buffers: "* && $err != *$'\n'* ]]
		shown 0 none
		[ "$(smaps AnonHugePages)" -eq 0 ]
		use /dev/ublkb0
		ublkctl del 0
	done
}
