#!/usr/bin/env bats
# cli/abi/ublk_abi.h against the newest packaged kernel header (or the file that UBLKCTL_UAPI_HEADER names)
# and the one of this machine. Two programs print the same names, one from each header; the outputs must be
# equal. What a packaged header does not know yet is not compared.
#
# shellcheck disable=SC2154,SC2016 # set by bats and common.bash; expanded elsewhere
# shellcheck disable=SC2030,SC2031 # each test is a process

load common

abi=cli/abi/ublk_abi.h
# Header on stdin without comments, one space for any run of blanks.
bare() {
	sed -E ':a; N; $!ba; s,/\*([^*]|\*+[^*/])*\*+/,,g' | tr -s ' \t' ' '
}

# Own macros whose name is the kernel's; their own include guard has no value.
macros() { # HEADER
	bare <"$1" | sed -nE 's/^ ?# ?define ((UBLK_|UBLKSRV_)[A-Z0-9_]+) [^ ].*/\1/p' | sort -u
}

# "STRUCT MEMBER array|single" of all structures, those inside of unions included.
members() { # HEADER
	bare <"$1" | awk '
		/^struct [a-z_]+ \{/ { name = $2; depth = 0 }
		name == "" { next }
		{ depth += gsub(/\{/, "{") - gsub(/\}/, "}") }
		match($0, /[a-z_0-9]+(\[[0-9]+\])?;/) && !/\}/ {
			m = substr($0, RSTART, RLENGTH - 1)
			kind = sub(/\[.*/, "", m) ? "array" : "single"
			print name, m, kind
		}
		depth == 0 { name = "" }' | sort -u
}

# Names of both headers.
common_names() { # FUNCTION
	comm -12 <("$1" "$abi") <("$1" "$header")
}

# C program that prints value, offset and size of the given names from one header. Of an array the size
# of one element: how many there are may change as long as what follows stays in place.
program() { # INCLUDE MACROS MEMBERS
	printf '#include <errno.h>\n#include <stddef.h>\n#include <stdio.h>\n#include <linux/ioctl.h>\n'
	printf '#include "%s"\nint main(void)\n{\n' "$1"
	while read -r name; do
		printf '\tprintf("%s %%#llx\\n", (unsigned long long)(%s));\n' "$name" "$name"
	done <<<"$2"
	while read -r struct member kind; do
		printf '\tprintf("%s.%s at %%zu size %%zu\\n", offsetof(struct %s, %s),' "$struct" "$member" \
			"$struct" "$member"
		printf ' sizeof(((struct %s *)0)->%s%s));\n' "$struct" "$member" \
			"$([ "$kind" = single ] || echo '[0]')"
	done <<<"$3"
	# structures that the driver copies whole; ublk_params tells its own length and may grow
	while read -r struct; do
		[ "$struct" = ublk_params ] ||
			printf '\tprintf("struct %s %%zu\\n", sizeof(struct %s));\n' "$struct" "$struct"
	done < <(cut -d ' ' -f 1 <<<"$3" | sort -u)
	printf '\treturn 0;\n}\n'
}

build_and_run() { # NAME INCLUDE MACROS MEMBERS
	program "$2" "$3" "$4" >"$BATS_TEST_TMPDIR/$1.c"
	"${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -o "$BATS_TEST_TMPDIR/$1" "$BATS_TEST_TMPDIR/$1.c"
	"$BATS_TEST_TMPDIR/$1" >"$BATS_TEST_TMPDIR/$1.out"
}

setup() {
	header=${UBLKCTL_UAPI_HEADER:-$(tests/vm/uapi)}
	[ -r "$header" ]
}

# With so many names at least.
same_as_header() { # MACROS MEMBERS
	local names fields

	names=$(common_names macros)
	fields=$(common_names members)
	echo "$header: $(wc -l <<<"$names") macros, $(wc -l <<<"$fields") members"
	[ "$(wc -l <<<"$names")" -ge "$1" ]
	[ "$(wc -l <<<"$fields")" -ge "$2" ]
	build_and_run ours "$PWD/$abi" "$names" "$fields"
	build_and_run kernel "$(realpath "$header")" "$names" "$fields"
	diff -u --label "$abi" --label "$header" "$BATS_TEST_TMPDIR/ours.out" "$BATS_TEST_TMPDIR/kernel.out"
}

@test "every value, offset and size is the kernel's" {
	same_as_header 60 70
}

@test "every value, offset and size is that of this machine's header" {
	header=/usr/include/linux/ublk_cmd.h
	# what Linux 6.1 has
	same_as_header 20 40
}

@test "the newest kernel's header knows every name" {
	# our own: the largest buffer follows from the bits of a position in the file
	[ "$(comm -23 <(macros "$abi") <(macros "$header"))" = UBLK_MAX_IO_BUF_BYTES ]
	[ -z "$(comm -23 <(members "$abi" | grep -v '^abi_') <(members "$header"))" ]
}

@test "a wrong number would be seen" {
	local names fields

	names=$(common_names macros)
	fields=$(common_names members)
	sed -E 's/(UBLK_MAX_QUEUE_DEPTH) 4096/\1 4095/; s/uint16_t state;/uint32_t state;/; /^ABI_ASSERT/d' \
		"$abi" >"$BATS_TEST_TMPDIR/wrong.h"
	build_and_run wrong "$BATS_TEST_TMPDIR/wrong.h" "$names" "$fields"
	build_and_run kernel "$(realpath "$header")" "$names" "$fields"
	run diff "$BATS_TEST_TMPDIR/wrong.out" "$BATS_TEST_TMPDIR/kernel.out"
	[ "$status" -eq 1 ]
	[[ $output == *"UBLK_MAX_QUEUE_DEPTH 0xfff"* ]]
	[[ $output == *"ublksrv_ctrl_dev_info.flags at"* ]]
}

@test "feature bits have no gap and are all in the header of this build" {
	# the kernel's own names where they are known, in the order of the bits
	run bash -c "sed -nE 's/^#define (UBLK_F_[A-Z_]+) \(1ULL << ([0-9]+)\)$/\2 \1/p' $abi"
	[ "$(cut -d ' ' -f 1 <<<"$output" | tr '\n' ' ')" = "$(seq -s ' ' 0 $((${#lines[@]} - 1))) " ]
	while read -r _ name; do
		grep -q "FEATURE($name," cli/abi/feature.c
	done <<<"$output"
}
