#!/usr/bin/env bats
# The README's sessions, run as they stand there: what is printed is what the README shows.
#
# shellcheck disable=SC2154 # set by bats and common.bash

load common

setup() {
	cd "$BATS_TEST_DIRNAME/../.." || return 1
	readme=$PWD/README.md
	program=$PWD/${BUILD:-build}/ublkctl
	mkdir -p /srv /tmp/bin
	ln -sf "$program" /tmp/bin/ublkctl
	rm -f /srv/disk.img
}

teardown() {
	umount -A /mnt 2>/dev/null
	"$program" del --all --force >/dev/null 2>&1
	rm -f /srv/disk.img
}

# The indented blocks between two lines of the README that have a command in them.
sessions() { # FROM-REGEX TO-REGEX
	awk -v from="$1" -v to="$2" '
		$0 ~ from { on = 1 }
		$0 ~ to { on = 0 }
		on && /^    / { print substr($0, 5) }' "$readme"
}

# Process ids, times and blanks between columns differ from run to run.
normal() {
	sed -E '/^$/d; s/process [0-9]+/process N/; s/[[:blank:]]+/ /g; s/^ //;
		s/^([0-9]+ ublkb.*) [0-9]+ ([^ ]+)$/\1 N \2/; s/^[0-9]+M disk.img/NM disk.img/'
}

# Runs the commands after "$ " in one shell and puts what they print below them.
replay() {
	local line
	set +e
	set -m
	cd /srv || return 1
	PATH=/tmp/bin:$PATH
	unset -f ublkctl
	while IFS= read -r line; do
		case $line in
		'$ '*)
			printf '%s\n' "$line"
			eval "${line#??}" >"$BATS_TEST_TMPDIR/said" 2>&1 </dev/null
			cat "$BATS_TEST_TMPDIR/said"
			# who reads and types takes longer than a job takes to end
			[[ $line != *'kill %1'* ]] || wait %1
			;;
		esac
	done
}

same_session() { # FROM TO
	sessions "$1" "$2" >"$BATS_TEST_TMPDIR/shown"
	[ "$(grep -c '^\$ ' "$BATS_TEST_TMPDIR/shown")" -ge "$3" ]
	# what a job says when it ends goes to a terminal otherwise
	(replay || true) <"$BATS_TEST_TMPDIR/shown" 2>/dev/null 3>&- >"$BATS_TEST_TMPDIR/said-all" || true
	normal <"$BATS_TEST_TMPDIR/said-all" >"$BATS_TEST_TMPDIR/is"
	normal <"$BATS_TEST_TMPDIR/shown" | diff -u --label README --label here - "$BATS_TEST_TMPDIR/is"
}

@test "README: two minutes with it" {
	needs_batch
	same_session '^## Two minutes' '^What the driver cannot do' 20
}

@test "README: what the driver cannot do, on Linux 6.12" {
	! has_batch || skip "this driver can"
	same_session '^What the driver cannot do' '^## When a server dies' 1
}

@test "README: when a server dies" {
	has_zero_copy || skip "restart and resize need Linux 6.16"
	truncate -s 1G /srv/disk.img
	mkfs.ext4 -q /srv/disk.img
	same_session '^## When a server dies' '^That is about servers that die' 8
}
