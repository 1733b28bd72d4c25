# Common to the tests of the built program on a machine that needs no driver. Started in the top directory.
# shellcheck shell=bash disable=SC2154 # bats sets status, output and stderr

bats_require_minimum_version 1.5.0

BUILD=${BUILD:-build}

ublkctl() {
	"$PWD/$BUILD/ublkctl" "$@"
}

# Makes a copy of a recorded tree the root of /sys, /dev, /run and /proc. A checkout can have any umask,
# and the program is careful whom it believes.
tree() { # NAME
	UBLKCTL_SYSROOT=$BATS_TEST_TMPDIR/root
	export UBLKCTL_SYSROOT
	cp -a "tests/cli/trees/$1" "$UBLKCTL_SYSROOT"
	chmod -R u=rwX,go=rX "$UBLKCTL_SYSROOT"
}

# Runs the program: $status, stdout in $output, stderr in $stderr.
program() {
	run --separate-stderr ublkctl "$@"
}

# The failure is one line on stderr that begins as documented, and nothing on stdout.
failed_with() { # STATUS
	if [ "$status" -ne "$1" ] || [ -n "$output" ] || [ "${#stderr_lines[@]}" -ne 1 ] ||
		[[ $stderr != "ublkctl: "* || $stderr == *. ]]; then
		echo "status $status, not $1, or not one proper line"
		echo "stdout: $output"
		echo "stderr: $stderr"
		return 1
	fi
}

# Prints the JSON of list; the messages beside it do not matter.
json() {
	ublkctl list --json "$@" 2>/dev/null
}

# Blanks squeezed, none at the ends of lines.
squeeze() {
	tr -s ' ' | sed 's/^ //; s/ $//'
}
