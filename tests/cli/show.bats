#!/usr/bin/env bats
# show against recorded trees, and wrong usage of it and of set-affinity; the tree "mixed" is described
# in list.bats.
#
# shellcheck disable=SC2154,SC2016 # set by bats and common.bash; expanded elsewhere

load common
load ../schema

shown() { # ID
	ublkctl show "$1" --json 2>/dev/null
}

@test "show --json has the pinned keys: those of list, then its own" {
	tree mixed
	for id in 0 1 2 10; do
		shown "$id" | fits show
		shown "$id" | jq -e --slurpfile g "$golden" --argjson l "$(json "$id")" '
			(keys_unsorted == ($g[0].show.top | keys_unsorted)) and
			(.device | keys_unsorted) == (($g[0].list.array + $g[0].show.device) | keys_unsorted) and
			(.device | with_entries(select(.key as $k | $l.devices[0] | has($k)))) == $l.devices[0] and
			.ublkctl == $l.ublkctl'
	done
}

@test "what the tree tells of a server, and what it does not" {
	tree mixed
	shown 0 | jq -e '.device | .parameters == null and .log == null and .server == null and
		.record == {path: "/run/ublkctl/0.json", trusted: true, reason: null} and
		(.queue_map | map(.queue)) == [0, 1]'
	shown 10 | jq -e '.device | .record.reason == "there is none" and .queue_map == null and .io_threads == null'
	shown 2 | jq -e '.device | .record.trusted == false and .server == null and .state == "dead"'
	# a server with one I/O thread, as /proc shows it
	pid=$(jq .pid "$UBLKCTL_SYSROOT/run/ublkctl/0.json")
	mkdir -p "$UBLKCTL_SYSROOT/proc/$pid/task/900"
	printf 'State:\tD (disk sleep)\nVmLck:\t4 kB\nVmRSS:\t8 kB\nThreads:\t3\n' >"$UBLKCTL_SYSROOT/proc/$pid/status"
	echo -1000 >"$UBLKCTL_SYSROOT/proc/$pid/oom_score_adj"
	echo "900 (ublk0.0) S 1 1 1 0 -1 $((0x180000)) 0" >"$UBLKCTL_SYSROOT/proc/$pid/task/900/stat"
	printf 'Cpus_allowed_list:\t0,2-5\n' >"$UBLKCTL_SYSROOT/proc/$pid/task/900/status"
	shown 0 | jq -e --argjson pid "$pid" '.device |
		.server == {pid: $pid, process_state: "D", own_mount_namespace: null, oom_score_adj: -1000,
			locked_memory: 4096, rss: 8192, threads: 3} and
		.io_threads == [{thread: 0, tid: 900, queues: [0, 1], cpus: "0,2-5", io_flusher: true}] and
		all(.queue_map[]; .threads == [900])'
}

@test "lines: name, colon, value; the affinity of a record by queue" {
	tree mixed
	text=$(jq '.affinity = "1=0,2-3"' "$UBLKCTL_SYSROOT/run/ublkctl/0.json")
	echo "$text" >"$UBLKCTL_SYSROOT/run/ublkctl/0.json"
	program show 0
	[ "$status" -eq 0 ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "ublkctl: show: only what sysfs and /proc tell: "* ]]
	text=$output
	grep -qx 'affinity: *1=0,2-3' <<<"$text"
	grep -qx 'queue 0: *cpus - affinity - threads -' <<<"$text"
	grep -qx 'queue 1: *cpus - affinity 0,2-3 threads -' <<<"$text"
	grep -qx 'size: *250G' <<<"$text"
	grep -qx 'parameters: *-' <<<"$text"
	run ! grep -vE '^[a-z][a-z0-9 ]*: +[^ ].*[^ ]$|: +[^ ]$' <<<"$text"
	program show 0 --bytes
	grep -qx 'size: *268435456000' <<<"$output"
}

@test "a record of an older version has no affinity, a damaged one is not believed" {
	tree mixed
	[ "$(jq 'has("affinity")' "$UBLKCTL_SYSROOT/run/ublkctl/0.json")" = false ]
	shown 0 | jq -e '.device | .record.trusted and .affinity == null'
	text=$(jq '.affinity = 7' "$UBLKCTL_SYSROOT/run/ublkctl/0.json")
	echo "$text" >"$UBLKCTL_SYSROOT/run/ublkctl/0.json"
	shown 0 | jq -e '.device.record.reason == "its content is not understood"'
}

@test "no such device, no device, too many" {
	tree mixed
	program show 3
	failed_with 4
	[[ $stderr == *"no device 3" ]]
	for words in "" "0 1" abc -1; do
		# shellcheck disable=SC2086 # words
		program show $words
		failed_with 2
	done
}

@test "set-affinity and --affinity: what is no QUEUE=CPUS is wrong usage, before anything else" {
	for word in 0 0= =0 0=a 0=1- 0=-1 0=1-0 0=1,,2 '0=,' '0= 1' '0=1 ' 0=1: :0=1 0=1024 4096=0 ''; do
		program set-affinity 0 "$word"
		failed_with 2
		program set-affinity 0 0=0 "$word"
		failed_with 2
		program add -t null --affinity "$word"
		failed_with 2
	done
	program set-affinity 0 0=0 0=1
	failed_with 2
	[[ $stderr == *"queue 0 is there twice" ]]
	program add -t null -q 2 --affinity 2=0
	failed_with 2
	[[ $stderr == *"queue 2: there are 2, from 0 to 1" ]]
}
