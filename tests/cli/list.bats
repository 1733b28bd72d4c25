#!/usr/bin/env bats
# list against recorded trees of /sys, /dev, /run and /proc. In the tree "mixed":
#   0   live, batch path, one thread on two queues, with a record
#   1   live, per-I/O path, not the defaults, with a record
#   2   dead: its server was killed; its record is still there
#   10  live, without a record, as another tool's
#
# shellcheck disable=SC2154,SC2016 # set by bats and common.bash; expanded elsewhere

load common

record() { # ID
	echo "$UBLKCTL_SYSROOT/run/ublkctl/$1.json"
}

# Changes a record in place; a jq filter.
change_record() { # ID FILTER
	local text
	text=$(jq "$2" "$(record "$1")")
	printf '%s\n' "$text" >"$(record "$1")"
}

# What the tree alone tells of device 0, when nobody vouches for its record.
unknown_0() {
	json 0 | jq -e '.devices == [{
		id: 0, name: "ublkb0", device: "/dev/ublkb0", target: "unknown", state: null,
		size: 268435456000, data_mode: null, batch: null, queues: null, depth: null, pid: null,
		backing: null, threads: null, recovery: null, read_only: false, io: null, offset: null,
		block_size: 512, physical_block_size: 4096, max_io: 524288, null_data: null,
		uid: null, gid: null, flags: null, char_device: "/dev/ublkc0", node_missing: false,
		created: null, affinity: null, scheduler: "none", queue_attr: null, poll_us: null,
		hugepages: null }]'
}

known_0() {
	json 0 | jq -e '.devices[0] | .target == "null" and .state == "live" and .threads == 1'
}

@test "all devices, sorted by number, other tools' and dead ones included" {
	tree mixed
	program list --json
	[ "$status" -eq 0 ]
	jq -e '[.devices[].id] == [0, 1, 2, 10]' <<<"$output"
	jq -e '[.devices[].state] == ["live", "live", "dead", null]' <<<"$output"
	jq -e '[.devices[].target] == ["null", "null", "unknown", "unknown"]' <<<"$output"
}

@test "a live device with a record, exactly" {
	tree mixed
	json 0 | jq -e --slurpfile r "$(record 0)" '.devices == [{
		id: 0, name: "ublkb0", device: "/dev/ublkb0", target: "null", state: "live",
		size: 268435456000, data_mode: "copy", batch: true, queues: 2, depth: 128, pid: $r[0].pid,
		backing: null, threads: 1, recovery: "off", read_only: false, io: null, offset: null,
		block_size: 512, physical_block_size: 4096, max_io: 524288, null_data: "zeros",
		uid: null, gid: null, flags: null, char_device: "/dev/ublkc0", node_missing: false,
		created: $r[0].created, affinity: null, scheduler: "none", queue_attr: null, poll_us: 0,
		hugepages: null }]'
	json 0 | jq -e '.devices[0].created | fromdate > 1700000000'
	json 1 | jq -e --slurpfile r "$(record 1)" '.devices == [{
		id: 1, name: "ublkb1", device: "/dev/ublkb1", target: "null", state: "live",
		size: 1073741824, data_mode: "copy", batch: false, queues: 1, depth: 64, pid: $r[0].pid,
		backing: null, threads: 1, recovery: "off", read_only: true, io: null, offset: null,
		block_size: 4096, physical_block_size: 8192, max_io: 1048576, null_data: "zeros",
		uid: null, gid: null, flags: null, char_device: "/dev/ublkc1", node_missing: false,
		created: $r[0].created, affinity: null, scheduler: "none", queue_attr: null, poll_us: 0,
		hugepages: null }]'
}

@test "a dead device: no disk, no process; what nobody vouches for is null" {
	tree mixed
	json 2 | jq -e '.devices == [{
		id: 2, name: "ublkb2", device: null, target: "unknown", state: "dead",
		size: null, data_mode: null, batch: null, queues: null, depth: null, pid: null,
		backing: null, threads: null, recovery: null, read_only: null, io: null, offset: null,
		block_size: null, physical_block_size: null, max_io: null, null_data: null,
		uid: null, gid: null, flags: null, char_device: "/dev/ublkc2", node_missing: null,
		created: null, affinity: null, scheduler: null, queue_attr: null, poll_us: null,
		hugepages: null }]'
	# what to do next is said, once
	program list
	[ "$status" -eq 0 ]
	[ "$(grep -c 'DEAD' <<<"$stderr")" -eq 1 ]
	grep -q "^ublkctl: list: .*device 2 .*'ublkctl del 2'" <<<"$stderr"
}

@test "another tool's device: what sysfs tells, the rest null" {
	tree mixed
	json 10 | jq -e '.devices == [{
		id: 10, name: "ublkb10", device: "/dev/ublkb10", target: "unknown", state: null,
		size: 3221225472, data_mode: null, batch: null, queues: null, depth: null, pid: null,
		backing: null, threads: null, recovery: null, read_only: false, io: null, offset: null,
		block_size: 512, physical_block_size: 4096, max_io: 524288, null_data: null,
		uid: null, gid: null, flags: null, char_device: "/dev/ublkc10", node_missing: false,
		created: null, affinity: null, scheduler: "mq-deadline", queue_attr: null, poll_us: null,
		hugepages: null }]'
}

@test "without the driver's word there is one hint, and the status is 0" {
	tree mixed
	program list 0
	[ "$status" -eq 0 ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "ublkctl: list: only what sysfs tells: "* ]]
}

@test "a tree is read, not the driver of this machine, and not written" {
	tree mixed
	before=$(find "$UBLKCTL_SYSROOT" -printf '%p %s %T@ %m\n' | sort)
	for words in list "list --json" "list 0" "list 0 1 -o +FLAGS"; do
		# shellcheck disable=SC2086 # words
		ublkctl $words 2>"$BATS_TEST_TMPDIR/err"
		grep -q 'only what sysfs tells' "$BATS_TEST_TMPDIR/err"
	done
	[ "$before" = "$(find "$UBLKCTL_SYSROOT" -printf '%p %s %T@ %m\n' | sort)" ]
}

@test "the table: default columns and values" {
	tree mixed
	run bash -c '"$1" list 2>/dev/null' bash "$PWD/$BUILD/ublkctl"
	[ "$status" -eq 0 ]
	pid0=$(jq .pid "$(record 0)") pid1=$(jq .pid "$(record 1)")
	diff -u - <(squeeze <<<"$output") <<-END
		ID NAME DEVICE TYPE STATE SIZE MODE BATCH QUEUES DEPTH PID BACKING
		0 ublkb0 /dev/ublkb0 null live 250G copy yes 2 128 $pid0 -
		1 ublkb1 /dev/ublkb1 null live 1G copy no 1 64 $pid1 -
		2 ublkb2 - unknown dead - - - - - - -
		10 ublkb10 /dev/ublkb10 unknown - 3G - - - - - -
	END
}

@test "-o chooses columns in the given order, + adds to the default ones, case does not matter" {
	tree mixed
	[ "$(ublkctl list 0 -o SIZE,ID 2>/dev/null | squeeze)" = "$(printf '%s\n' 'SIZE ID' '250G 0')" ]
	[ "$(ublkctl list 0 -o size,Id 2>/dev/null | squeeze)" = "$(printf '%s\n' 'SIZE ID' '250G 0')" ]
	[ "$(ublkctl list 0 --columns=phys-block-size 2>/dev/null | squeeze)" = \
		"$(printf '%s\n' PHYS-BLOCK-SIZE 4K)" ]
	[ "$(ublkctl list 1 -o +THREADS,ro 2>/dev/null | squeeze | head -n 1)" = \
		"ID NAME DEVICE TYPE STATE SIZE MODE BATCH QUEUES DEPTH PID BACKING THREADS RO" ]
	[[ $(ublkctl list 1 -o +THREADS,ro --noheadings 2>/dev/null | squeeze) == *" - 1 yes" ]]
}

@test "every column can be chosen alone" {
	tree mixed
	while read -r name; do
		run --separate-stderr ublkctl list 0 -o "$name"
		[ "$status" -eq 0 ]
		[ "$(squeeze <<<"${lines[0]}")" = "$name" ]
		[ "${#lines[@]}" -eq 2 ]
	done < <(ublkctl --dump-cli | jq -r '.commands[] | select(.name == "list").columns[].name')
}

@test "--raw --noheadings --bytes: for scripts" {
	tree mixed
	diff -u - <(ublkctl list --raw --noheadings --bytes -o ID,SIZE,MAX-IO,BLOCK-SIZE,RO,DEVICE 2>/dev/null) <<-'END'
		0 268435456000 524288 512 no /dev/ublkb0
		1 1073741824 1048576 4096 yes /dev/ublkb1
		2 - - - - -
		10 3221225472 524288 512 no /dev/ublkb10
	END
	[ "$(ublkctl list --raw --noheadings -o ID 2>/dev/null | tr '\n' ' ')" = "0 1 2 10 " ]
	[ "$(ublkctl list --raw -o ID,STATE 0 2>/dev/null)" = "$(printf '%s\n' 'ID STATE' '0 live')" ]
	[ "$(ublkctl list --bytes -o SIZE 1 2>/dev/null | squeeze | tail -n 1)" = 1073741824 ]
}

@test "values cannot break the table or a raw line" {
	tree mixed
	change_record 0 '.target = "a b\nc\u001b[31m"'
	[ "$(ublkctl list --raw --noheadings -o ID,TYPE,STATE 0 2>/dev/null | wc -l)" -eq 1 ]
	[ "$(ublkctl list --raw --noheadings -o ID,TYPE,STATE 0 2>/dev/null | wc -w)" -eq 3 ]
	[ "$(ublkctl list --noheadings -o ID,TYPE,STATE 0 2>/dev/null | wc -l)" -eq 1 ]
	run ! grep -q $'\e' <(ublkctl list 2>/dev/null)
	json 0 | jq -e '.devices[0].target == "a b\nc\u001b[31m"'
}

@test "operands: ids and paths; a missing one is status 4, the others are shown" {
	tree mixed
	for word in 1 /dev/ublkb1 /dev/ublkc1; do
		json "$word" | jq -e '[.devices[].id] == [1]'
	done
	json 0 10 | jq -e '[.devices[].id] == [0, 10]'
	program list 5
	[ "$status" -eq 4 ]
	[ "$(grep -c '^ublkctl: list: .*device 5' <<<"$stderr")" -eq 1 ]
	program list --json 5
	[ "$status" -eq 4 ]
	jq -e '.devices == []' <<<"$output"
	program list --json 0 5 10
	[ "$status" -eq 4 ]
	jq -e '[.devices[].id] == [0, 10]' <<<"$output"
	program list 3 4
	[ "$status" -eq 4 ]
	grep -q 'device 3' <<<"$stderr"
	grep -q 'device 4' <<<"$stderr"
}

@test "options and operands in any order" {
	tree mixed
	[ "$(ublkctl list 1 --json 2>/dev/null)" = "$(ublkctl list --json 1 2>/dev/null)" ]
	[ "$(ublkctl list --json -- 1 2>/dev/null)" = "$(ublkctl list --json 1 2>/dev/null)" ]
}

@test "--state filters, also the hints" {
	tree mixed
	json --state live | jq -e '[.devices[].id] == [0, 1]'
	json --state dead | jq -e '[.devices[].id] == [2]'
	for state in quiesced fail-io; do
		program list --json --state "$state"
		[ "$status" -eq 0 ]
		jq -e '.devices == []' <<<"$output"
	done
	program list --state live
	[ "$status" -eq 0 ]
	run ! grep -q DEAD <<<"$stderr"
}

@test "a driver without devices: an empty array, status 0" {
	tree idle
	program list --json
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	jq -e '.devices == [] and .ublkctl.schema == 1' <<<"$output"
	program list
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	program list --noheadings --raw -o ID
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	program list 0
	[ "$status" -eq 4 ]
}

@test "no driver: status 3, naming ublk_drv and modprobe" {
	tree no-driver
	for words in list "list --json" "list --noheadings --raw -o ID" "list --state dead"; do
		# shellcheck disable=SC2086 # words
		program $words
		failed_with 3
		[[ $stderr == *ublk_drv* && $stderr == *modprobe* ]]
	done
}

@test "--list-columns: all columns, without a driver" {
	tree no-driver
	program list --list-columns
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	[ "$(awk '{ print $1, $2 }' <<<"$output")" = \
		"$(ublkctl --dump-cli | jq -r '.commands[] | select(.name == "list").columns[] | "\(.name) \(.key)"')" ]
}

@test "a node that is missing is told" {
	tree mixed
	rm "$UBLKCTL_SYSROOT/dev/ublkb1"
	json | jq -e '[.devices[] | select(.id != 2).node_missing] == [false, true, false]'
}

@test "a disk whose attributes cannot be read is listed all the same" {
	tree mixed
	dir=$UBLKCTL_SYSROOT/sys/devices/virtual/block/ublkb10
	rm -r "$dir/queue" "$dir/size" "$dir/ro"
	json 10 | jq -e '.devices[0] | .id == 10 and .size == null and .block_size == null and .read_only == null'
	for text in '' abc -1 99999999999999999999 '1 2'; do
		printf '%s' "$text" >"$dir/size"
		json 10 | jq -e '.devices[0] | .size == null'
	done
}

@test "only names of ublk devices count" {
	tree mixed
	class=$UBLKCTL_SYSROOT/sys/class/ublk-char
	mkdir "$class"/{ublkc,ublkcx,ublkc-1,ublkc3x,ublkb4,other}
	json | jq -e '[.devices[].id] == [0, 1, 2, 10]'
}

@test "a record that others could have written is not believed" {
	for mode in 664 646 666 622; do
		tree mixed
		known_0
		chmod "$mode" "$(record 0)"
		unknown_0
		rm -r "$UBLKCTL_SYSROOT"
	done
}

@test "a record that is no regular file is not believed, and does not block" {
	tree mixed
	mv "$(record 0)" "$UBLKCTL_SYSROOT/run/other.json"
	unknown_0
	ln -s ../other.json "$(record 0)"
	unknown_0
	rm "$(record 0)"
	mkfifo "$(record 0)"
	timeout 5 "$BUILD/ublkctl" list 0 >/dev/null 2>&1
	unknown_0
	rm "$(record 0)"
	mkdir "$(record 0)"
	unknown_0
	rmdir "$(record 0)"
	ln -s /dev/zero "$(record 0)"
	timeout 5 "$BUILD/ublkctl" list 0 >/dev/null 2>&1
	unknown_0
	rm "$(record 0)"
	# a hard link is a regular file
	ln "$UBLKCTL_SYSROOT/run/other.json" "$(record 0)"
	known_0
}

@test "a record directory that is a link is not believed" {
	tree mixed
	mv "$UBLKCTL_SYSROOT/run/ublkctl" "$UBLKCTL_SYSROOT/run/elsewhere"
	ln -s elsewhere "$UBLKCTL_SYSROOT/run/ublkctl"
	unknown_0
}

@test "garbage for a record is not believed" {
	tree mixed
	good=$(cat "$(record 0)")
	for text in '' ' ' '{' '[]' 'null' '7' '"text"' '{}' "${good%\}}" "[$good]" 'not JSON at all' \
		"$good$good" "$good x" "$good}"; do
		printf '%s' "$text" >"$(record 0)"
		unknown_0
	done
	printf '\377\376\0\1\2' >"$(record 0)"
	unknown_0
	head -c 100000 /dev/zero >"$(record 0)"
	unknown_0
	{
		printf '%s' "$good"
		head -c 70000 /dev/zero | tr '\0' ' '
	} >"$(record 0)"
	unknown_0
	printf '%s' "$good" >"$(record 0)"
	known_0
}

@test "a record of another schema, device or shape is not believed" {
	for filter in '.schema = 2' '.schema = 0' '.schema = "1"' 'del(.schema)' '.id = 1' '.id = "0"' 'del(.target)' \
		'.target = 5' 'del(.pid)' '.pid = -1' '.pid = "1"' '.pid = 1.5' 'del(.pid_start)' 'del(.cookie)' \
		'.cookie = 5' '.cookie = "0xyz"' 'del(.batch)' '.batch = 1' '.batch = "true"' '.queues = 0' \
		'.queues = 4097' '.depth = 4097' '.depth = 0' '.threads = -1' '.size = -512' 'del(.size)' \
		'.size = "268435456000"' '.block_size = 0' 'del(.created)' 'del(.version)' \
		'.target = ("x" * 5000)' '.created = ("x" * 5000)'; do
		tree mixed
		change_record 0 "$filter"
		unknown_0 || { echo "believed: $filter"; return 1; }
		rm -r "$UBLKCTL_SYSROOT"
	done
}

@test "a record with keys that this version does not know is believed" {
	tree mixed
	change_record 0 '.newer = {"a": [1]}'
	known_0
}

@test "a record whose server has ended, or whose pid is another process's, is not believed" {
	tree mixed
	pid=$(jq .pid "$(record 0)")
	stat=$UBLKCTL_SYSROOT/proc/$pid/stat
	good=$(cat "$stat")
	change_record 0 '.pid_start += 1'
	unknown_0
	change_record 0 '.pid_start -= 1'
	known_0
	# its command name can be anything
	echo "${good/(ublkctl)/(a) S 1 (b c)}" >"$stat"
	known_0
	# ended, but not yet waited for
	sed -E 's/^([0-9]+ \(.*\)) . /\1 Z /' <<<"$good" >"$stat"
	unknown_0
	echo "$pid (ublkctl" >"$stat"
	unknown_0
	rm "$stat"
	unknown_0
}

@test "as a normal user: the same" {
	[ "$(id -u)" = 0 ] || skip "needs root to become another user"
	tree mixed
	# out of the directories that only root may enter
	home=$(mktemp -d)
	cp -a "$UBLKCTL_SYSROOT" "$home/root"
	cp "$BUILD/ublkctl" "$home/"
	chmod 755 "$home" "$home/ublkctl"
	user() {
		UBLKCTL_SYSROOT=$home/root setpriv --reuid 65534 --regid 65534 --clear-groups "$home/ublkctl" "$@"
	}
	run --separate-stderr user list --json
	[ "$status" -eq 0 ]
	[ "$output" = "$(json)" ]
	[ "$(grep -c 'only what sysfs tells' <<<"$stderr")" -eq 1 ]
	# records that the user may not read are as none
	chmod 600 "$home/root/run/ublkctl/0.json"
	run --separate-stderr user list --json
	[ "$status" -eq 0 ]
	jq -e '.devices[0].target == "unknown" and .devices[1].target == "null"' <<<"$output"
	rm -r "$home"
}
