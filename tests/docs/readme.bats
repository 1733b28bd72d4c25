#!/usr/bin/env bats
# README and CHANGELOG against the program, the Makefile and the tree.
#
# shellcheck disable=SC2154,SC2016 # set by bats and common.bash; expanded elsewhere

load common

# "MODE KERNEL yes|no" of each data mode from the sources: first kernel of all its features, 6.5 at
# least, and whether the batch path has it.
modes() {
	local name flags batch flag since

	while IFS='#' read -r name flags batch; do
		since=6.5
		while read -r flag; do
			since=$(sed -nE "s/.*FEATURE\\($flag, \"([0-9.]+)\".*/\\1/p; \$a $since" cli/abi/feature.c |
				sort -V | tail -n 1)
		done < <(grep -oE 'UBLK_F_[A-Z_]+' <<<"$flags")
		echo "$name $since $batch"
	done < <(awk -F '[="]' '
		/^\t\[DATA_/ { name = flags = ""; batch = "yes" }
		/\.name =/ { name = $3 }
		/\.flags =/ { flags = $2 }
		/\.per_io_only = true/ { batch = "no" }
		/^\t},/ && name { print name "#" flags "#" batch; name = "" }' cli/engine/iobuf.c)
	# without features of its own, and never one without batch
	echo "best 6.5 yes"
}

@test "README: the command table has every command with its summary, and no other" {
	same "command table" "$(cli '.commands[] | "\(.name) \(.summary)"')" \
		"$(sed '0,/^## Commands/d; /^## /,$d' README.md |
			sed -nE 's/^\| `([a-z-]+)` \| ([^|]*) \| .*/\1 \2/p')"
}

@test "README: the tables of measurements are those of make bench and tests/bench/compare" {
	same "tables" "$(tests/bench/table tests/bench/results.txt | cat -s; echo; cat tests/bench/compare.txt)" \
		"$(sed '0,/^## Performance/d; /^## /,$d' README.md | sed '/^|/!s/.*//' | cat -s | sed '1{/^$/d}')"
}

@test "README: examples are understood" {
	examples_parse 30 <README.md
}

@test "README: tables that are shown have the default columns" {
	header=$(cli '[.commands[] | select(.name == "list").columns[] | select(.default).name] | join(" ")')
	same "headers of list" "$header" "$(grep '^ *ID NAME' README.md | tr -s ' ' | sed 's/^ //' | sort -u)"
}

@test "README: exit statuses are those of the program" {
	text=$(tr '\n' ' ' <README.md)
	for number in $(cli '.exit_statuses[].status | select(. < 128)'); do
		[[ $text == *"xit statuses:"*" $number "* ]]
	done
}

@test "README: make targets and programs that it names exist" {
	while read -r _ target; do
		grep -qE "^$target:" Makefile || { echo "no target $target"; return 1; }
	done < <(grep -oE '\<make [a-z]+' README.md | sort -u)
	for file in $(grep -oE '\]\([A-Za-z.]+\)' README.md | tr -d '()]') man/ublkctl.8; do
		[ -f "$file" ]
	done
	grep -oE 'tests/[a-z/]+' README.md | while read -r file; do [ -x "$file" ]; done
}

@test "README: library versions are the Makefile's" {
	for library in liburing json-c smartcols; do
		version=$(sed -nE "s/.*\<$library:([0-9.]+):.*/\1/p" Makefile)
		grep -q "$library ${version//./\\.}\>" README.md
	done
}

@test "README and man page name the first kernel of each feature that is used" {
	for option in batch no-partscan; do
		grep -qE "Linux 7\.0.*--$option|--$option.*Linux 7\.0" README.md
	done
	for option in zero-copy auto-zc; do
		since=$(modes | sed -n "s/^$option \\([0-9.]*\\) .*/\\1/p")
		grep -qE "\<$since (or later \| )?for .*\`$option\`" README.md
	done
	[ "$(sed -nE 's/.*FEATURE\([A-Z_]*, "([0-9.]+)", "(--batch|--no-partscan|del)".*/\1/p' \
		cli/abi/feature.c | sort -u)" = 7.0 ]
}

@test "README and man page: what each data mode needs" {
	same "modes in README" "$(modes)" \
		"$(sed -nE 's/^\| `([a-z-]+)`[^|]*\|[^|]*\| ([0-9.]+) \| (yes|no) \|$/\1 \2 \3/p' README.md)"
	same "modes in the man page" "$(modes)" \
		"$(sed 's/\\-/-/g' "$man" |
			sed -nE 's/^\.It ([a-z-]+) Ta [^|]* Ta Linux ([0-9.]+) Ta (yes|no)$/\1 \2 \3/p')"
}

@test "README: short forms of data modes are options" {
	for option in $(grep -E '^\| `[a-z-]+`, `-' README.md | grep -oE '`-[a-z-]+`' | tr -d '`'); do
		ublkctl add "$option" --help >/dev/null
	done
}

@test "CHANGELOG: its first version is the program's" {
	[ "$(sed -nE 's/^## ([0-9.]+).*/\1/p' CHANGELOG.md | head -n 1)" = \
		"$(ublkctl --version | sed -n '1s/^ublkctl //p')" ]
}

@test "the license is named and there" {
	grep -q MIT README.md
	grep -q MIT LICENSE
}
