# shellcheck shell=bash disable=SC2034 # used by the tests
# Common to all tests on a real driver. Runs in the guest, as root.

ublkctl() {
	"$PWD/${BUILD:-build}/ublkctl" "$@"
}

# A sanitizer's build locks no memory, and ends with a status of its own where it cannot look for leaks.
is_sanitized() {
	[ "${BUILD:-build}" != build ]
}

linux_is() { # VERSION: this one or a later one
	[ "$(printf '%s\n' "$1" "$(uname -r)" | sort -V | head -n 1)" = "$1" ]
}

has_batch() {
	linux_is 7.0
}

needs_batch() {
	has_batch || skip "the batch path needs Linux 7.0, this is $(uname -r)"
}

# "per-io" and, where the driver has it, "batch"
paths() {
	echo per-io
	if has_batch; then echo batch; fi
}

# The same where the paths hardly differ: in a slice of the tests only the last of them.
some_paths() {
	if full; then paths; else paths | tail -n 1; fi
}

# add_on PATH WORDS…: add with these words on one of the paths
add_on() {
	local path=$1
	shift
	if [ "$path" = batch ]; then set -- -b "$@"; fi
	ublkctl add "$@"
}

# Everything a device can leave behind.
nothing_left() {
	local left p comm
	# globs and read: a program for each of these takes long in an emulated guest
	shopt -s nullglob dotglob
	left=(/dev/ublk[bc]* /sys/class/ublk-char/* /sys/block/ublkb* /run/ublkctl/*)
	for p in /proc/[0-9]*/comm; do
		if read -r comm 2>/dev/null <"$p" && [ "$comm" = ublkctl ]; then left+=("$p"); fi
	done
	shopt -u nullglob dotglob
	if [ "${#left[@]}" -gt 0 ]; then
		echo "left behind: ${left[*]}" >&2
		return 1
	fi
}

# Waits up to 10 s for a condition that another process brings about.
wait_for() {
	local i
	for ((i = 0; i < 200; i++)); do
		if "$@"; then return 0; fi
		sleep 0.05
	done
	echo "never true: $*" >&2
	return 1
}

# hardware queues of a disk
nr_mq() {
	find "/sys/block/ublkb$1/mq" -mindepth 1 -maxdepth 1 | wc -l
}

# A process that has FILE open for SECONDS; its id in $opener.
hold_open() {
	# shellcheck disable=SC2217 # it is only to be open
	sleep "$2" <"$1" 3>&- &
	opener=$!
}

# One value of a device; jq takes longer to start in an emulated guest than all of the rest.
column() { # ID COLUMN
	ublkctl list "$1" --raw --noheadings -o "$2" 2>/dev/null
}

server_pid() {
	column "$1" PID | grep '^[0-9]*$'
}

state_is() {
	[ "$(column "$1" STATE)" = "$2" ]
}

gone() {
	[ ! -e "/proc/$1" ] || grep -q '^State:	Z' "/proc/$1/status"
}

# run, with stderr apart in $err
run_split() {
	local errfile=$BATS_TEST_TMPDIR/stderr
	status=0
	output=$("$@" 2>"$errfile") || status=$?
	err=$(<"$errfile")
	echo "status $status, stdout: $output, stderr: $err"
}

setup() {
	cd "$BATS_TEST_DIRNAME/../.." || return 1
}

# A failed test must not spoil the next one.
teardown() {
	local pid
	if nothing_left 2>/dev/null; then return 0; fi
	for pid in $(pgrep ublkctl); do kill -CONT "$pid" 2>/dev/null; done
	umount -A /mnt 2>/dev/null
	ublkctl del --all --force >/dev/null 2>&1
	return 0
}

# all of its modes, and with it what else came then: QUIESCE_DEV, UPDATE_SIZE
has_zero_copy() {
	linux_is 6.16
}

# Can this driver serve a data mode on an I/O path?
has_mode() { # MODE PATH
	case $1 in
	*zero-copy | auto-zc*) has_zero_copy || return 1 ;;
	esac
	[ "$2" = per-io ] || has_batch
}

needs_mode() { # MODE PATH
	has_mode "$1" "$2" || skip "Linux $(uname -r) has no $1 on the $2 path"
}

# Everything that can be tested, or a slice of it?
full() {
	[ -n "${UBLKCTL_FULL:-}" ]
}

# add with these words fails with STATUS and one line on stderr that holds TEXT, and leaves nothing new.
refused() { # STATUS TEXT WORD...
	local before after
	before=$(echo /sys/class/ublk-char/* /run/ublkctl/*)
	run_split ublkctl add "${@:3}"
	[ "$status" -eq "$1" ]
	[ -z "$output" ]
	[[ $err == "ublkctl: add: "*"$2"* && $err != *$'\n'* ]]
	after=$(echo /sys/class/ublk-char/* /run/ublkctl/*)
	[ "$before" = "$after" ]
}

# A limit of a device's queue, without a program.
queue_attr() { # DEVICE ATTRIBUTE
	local value
	read -r value <"/sys/block/${1#/dev/}/queue/$2"
	echo "$value"
}
