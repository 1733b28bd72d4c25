# Common to the checks of documentation and packaging: no root, no driver, started in the top directory.
# shellcheck shell=bash disable=SC2034 # used by the tests

bats_require_minimum_version 1.5.0

BUILD=${BUILD:-build}
man=man/ublkctl.8

ublkctl() {
	"$PWD/$BUILD/ublkctl" "$@"
}

# The command line's own description, filtered by jq.
cli() {
	ublkctl --dump-cli | jq -r "$@"
}

# Fails and shows the difference unless both texts are equal.
same() { # WHAT EXPECTED FOUND
	diff -u --label "$1: the program" --label "$1: found" <(printf '%s\n' "$2") <(printf '%s\n' "$3")
}

# Each "ublkctl COMMAND …" in the text on stdin must be one that the program understands: its options
# are parsed, and --help keeps it from being run.
examples_parse() { # LEAST-NUMBER
	local line words count=0 d=0

	while read -r line; do
		eval "words=(${line#ublkctl })"
		ublkctl "${words[@]}" --help >/dev/null || {
			echo "not understood: $line"
			return 1
		}
		count=$((count + 1))
	done < <(grep -oE "ublkctl ($(cli '.commands[].name' | paste -sd '|'))\>[^|;)#<>&\`'\"]*")
	echo "$count examples"
	[ "$count" -ge "$1" ]
}
