#!/usr/bin/env bats
# Counters of running servers against what the kernel counted of the same disk, and fio.
#
# shellcheck disable=SC2154 # set by bats and common.bash

load common

stat_of() { # JQ-FILTER
	ublkctl stat 0 --json | jq -e ".devices[0] | $1"
}

@test "stat counts what the kernel counted: reads, writes, flushes, discards, bytes" {
	local path device reads sectors writes wsectors discards _
	for path in $(paths); do
		device=$(add_on "$path" -t null --no-partscan 2>/dev/null || add_on "$path" -t null)
		dd if="$device" of=/dev/null bs=4k count=100 iflag=direct status=none
		dd if=/dev/zero of="$device" bs=8k count=50 oflag=direct status=none
		blkdiscard -o 0 -l 1M "$device"
		read -r reads _ sectors _ writes _ wsectors _ _ _ _ discards _ <"/sys/block/ublkb0/stat"
		ublkctl stat 0 --json >"$BATS_TEST_TMPDIR/json"
		jq -e --argjson r "$reads" --argjson s "$sectors" --argjson w "$writes" --argjson ws "$wsectors" \
			--argjson d "$discards" '.devices[0] | .reads == $r and .read_bytes == $s * 512 and
			.writes == $w and .write_bytes == $ws * 512 and .discards == $d and .errors == 0 and
			.in_flight == 0 and .wakeups > 0' "$BATS_TEST_TMPDIR/json"
		# the queues make up the whole
		[ "$(ublkctl stat 0 --queues --json | jq '[.devices[].reads] | add')" -eq "$reads" ]
		if [ "$path" = batch ]; then
			stat_of '(.fetch_sizes | add) > 0 and (.commit_sizes | add) > 0'
		else
			stat_of '(.fetch_sizes | add) == 0 and (.commit_sizes | add) == 0'
		fi
		ublkctl del 0
	done
}

@test "stat: errors and requests in flight" {
	local device
	truncate -s 16M /dev/shm/backing
	device=$(ublkctl add -t file -f /dev/shm/backing)
	truncate -s 0 /dev/shm/backing
	! dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none || false
	stat_of '.errors > 0'
	ublkctl del 0
	rm /dev/shm/backing
}

@test "stat --watch shows the I/Os per second that fio has" {
	local device
	device=$(ublkctl add -t null -q 1)
	fio --name=x --filename="$device" --rw=randread --bs=4k --iodepth=16 --ioengine=io_uring --direct=1 \
		--rate_iops=1000 --time_based --runtime=12 --output-format=json --output="$BATS_TEST_TMPDIR/fio" \
		>/dev/null 2>&1 3>&- &
	load=$!
	# it has begun, and has made good what it missed meanwhile
	wait_for stat_of '.reads > 2000' >/dev/null
	status=0
	timeout -s INT 4.5 "${BUILD:-build}/ublkctl" stat 0 --watch 1 --raw --noheadings -o READS \
		>"$BATS_TEST_TMPDIR/watch" || status=$?
	[ "$status" -eq 124 ]
	wait "$load"
	cat "$BATS_TEST_TMPDIR/watch"
	[ "$(wc -l <"$BATS_TEST_TMPDIR/watch")" -ge 2 ]
	iops=$(sed -n '/^{/,$p' "$BATS_TEST_TMPDIR/fio" | jq '.jobs[0].read.iops | floor')
	# the mean of the lines within 2 %
	awk -v iops="$iops" '{ sum += $1; n++ } END { d = sum / n - iops; exit !(d * d <= iops * iops * 0.0004) }' \
		"$BATS_TEST_TMPDIR/watch"
}

@test "stat --watch goes on with the next server, and ends when there is none" {
	local device server watch load
	device=$(ublkctl add -t null -q 1 -r reissue)
	fio --name=x --filename="$device" --rw=randread --bs=4k --iodepth=4 --ioengine=io_uring --direct=1 \
		--rate_iops=500 --time_based --runtime=60 >/dev/null 2>&1 3>&- &
	load=$!
	"$PWD/${BUILD:-build}/ublkctl" stat 0 --watch 1 --raw --noheadings -o READS \
		>"$BATS_TEST_TMPDIR/watch" 2>"$BATS_TEST_TMPDIR/err" 3>&- &
	watch=$!
	wait_for test -s "$BATS_TEST_TMPDIR/watch"
	server=$(server_pid 0)
	kill -KILL "$server"
	wait_for gone "$server"
	ublkctl recover 0
	: >"$BATS_TEST_TMPDIR/watch"
	wait_for grep -q '^[1-9][0-9][0-9]' "$BATS_TEST_TMPDIR/watch"
	kill "$load"
	wait "$load" || true
	ublkctl del 0
	status=0
	wait "$watch" || status=$?
	[ "$status" -eq 4 ]
	[ "$(cat "$BATS_TEST_TMPDIR/err")" = "ublkctl: stat: no device 0" ]
}

@test "stat --watch of several goes on with those that are left" {
	local watch
	ublkctl add -t null -q 1
	ublkctl add -t null -q 2
	ublkctl add -t null -q 1
	"$PWD/${BUILD:-build}/ublkctl" stat --queues --watch 1 --raw --noheadings -o ID,QUEUE,READS \
		>"$BATS_TEST_TMPDIR/watch" 2>"$BATS_TEST_TMPDIR/err" 3>&- &
	watch=$!
	wait_for grep -q '^2 ' "$BATS_TEST_TMPDIR/watch"
	ublkctl del 1
	wait_for test -s "$BATS_TEST_TMPDIR/err"
	: >"$BATS_TEST_TMPDIR/watch"
	wait_for grep -q '^2 ' "$BATS_TEST_TMPDIR/watch"
	run sort -u "$BATS_TEST_TMPDIR/watch"
	[ "$output" = "$(printf '0 0 0\n2 0 0')" ]
	kill "$watch"
	wait "$watch" || true
	[ "$(cat "$BATS_TEST_TMPDIR/err")" = "ublkctl: stat: no device 1" ]
}

@test "stat --prometheus has each series once, with a type" {
	ublkctl add -t null -q 1
	ublkctl add -t null -q 1
	dd if=/dev/ublkb1 of=/dev/null bs=4k count=10 iflag=direct status=none
	ublkctl stat --prometheus >"$BATS_TEST_TMPDIR/text"
	[ -z "$(grep -v '^#' "$BATS_TEST_TMPDIR/text" | sed 's/ [^ ]*$//' | sort | uniq -d)" ]
	! grep -vE '^(# (HELP|TYPE) [a-z_]+ .*|[a-z_]+\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\} [0-9.e+-]+)$' \
		"$BATS_TEST_TMPDIR/text" || false
	reads=$(sed -n 's/^ublkctl_requests_total{device="ublkb1",queue="0",op="read"} //p' "$BATS_TEST_TMPDIR/text")
	[ "$reads" -eq "$(ublkctl stat 1 --json | jq '.devices[0].reads')" ]
	# the buckets of a histogram grow up to its count
	grep '^ublkctl_latency_seconds_bucket{device="ublkb1"' "$BATS_TEST_TMPDIR/text" |
		awk '{ if ($2 < last) exit 1; last = $2 }'
	[ "$(sed -n 's/^ublkctl_latency_seconds_count{device="ublkb1",queue="0"} //p' "$BATS_TEST_TMPDIR/text")" -ge "$reads" ]
}

@test "stat: no such device, no server, a hung server" {
	run_split ublkctl stat 7
	[ "$status" -eq 4 ]
	ublkctl add -t null -r queue
	pid=$(server_pid 0)
	kill -STOP "$pid"
	timeout 20 "${BUILD:-build}/ublkctl" stat 0 --json | jq -e '.devices[0].id == 0'
	kill -CONT "$pid"
	kill -KILL "$pid"
	wait_for state_is 0 quiesced
	run_split ublkctl stat 0
	[ "$status" -eq 1 ]
	[[ $err == *"device 0 has no server"* ]]
	run_split ublkctl stat --json
	[ "$status" -eq 0 ]
	jq -e '.devices == []' <<<"$output"
	run_split setpriv --reuid 65534 --regid 65534 --clear-groups "${BUILD:-build}/ublkctl" stat
	[ "$status" -eq 6 ]
}
