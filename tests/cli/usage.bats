#!/usr/bin/env bats
# Wrong usage: status 2, one line on stderr, nothing on stdout, and the value that was wrong is named.
#
# shellcheck disable=SC2154,SC2016 # set by bats and common.bash; expanded elsewhere

load common

# The words are wrong usage of a command, and the message names the command and the last word.
refused() { # COMMAND WORD...
	program "$@"
	failed_with 2
	[[ $stderr == "ublkctl: $1: "* ]]
	[[ $stderr == *"${!#}"* ]] || { echo "does not name '${!#}': $stderr"; return 1; }
}

# The same where the last word is not what is wrong.
refused_for() { # TEXT COMMAND WORD...
	local text=$1
	shift
	program "$@"
	failed_with 2
	[[ $stderr == "ublkctl: $1: "* ]]
	[[ $stderr == *"$text"* ]] || { echo "does not name '$text': $stderr"; return 1; }
}

@test "no command, an unknown command, an unknown option" {
	program
	failed_with 2
	[[ $stderr == *help* ]]
	for word in nonsense '' --nonsense -x - -- ad 'add '; do
		program "$word"
		failed_with 2
		[[ $stderr == *"'$word'"* ]]
	done
}

@test "every command: unknown option, missing and unwanted argument" {
	for command in $(ublkctl --dump-cli | jq -r '.commands[].name'); do
		refused "$command" --nonsense
		refused_for "-Z" "$command" -Z
		refused_for --help "$command" --help=yes
	done
	while read -r command name letter; do
		refused_for "--$name" "$command" "--$name"
		[ "$letter" = null ] || refused_for "-$letter" "$command" "-$letter"
	done < <(ublkctl --dump-cli | jq -r \
		'.commands[] | .name as $c | .options[] | select(.argument) | "\($c) \(.name) \(.letter)"')
	while read -r command name; do
		refused_for "--$name" "$command" "--$name=1"
	done < <(ublkctl --dump-cli | jq -r \
		'.commands[] | .name as $c | .options[] | select(.argument == null) | "\($c) \(.name)"')
}

@test "every number and size: empty, signed, with a blank, with trailing text, too large" {
	local words=(add -t null)

	while read -r command name; do
		[ "$command" = add ] && words=(add -t null) || words=("$command" 0)
		for value in '' -1 +1 ' 1' '1 ' 1x 0x10 1e3 1.5 abc 18446744073709551617 99999999999999999999999; do
			refused_for "$value" "${words[@]}" "--$name" "$value"
			[[ $stderr == *"$name"* || $name == id ]]
		done
	done < <(ublkctl --dump-cli | jq -r '.commands[] | .name as $c | .options[] |
		select(.type | IN("number", "id", "size")) | "\($c) \(.name)"')
}

@test "add: a target is needed, and a known one" {
	refused_for type add
	refused_for type add -b
	refused add -t nonsense
	refused_for type add -t ''
	refused_for null add -t nonsense
	refused add -t NULL
}

@test "add: numbers out of range" {
	refused add -t null -d 0
	refused add -t null -d 4097
	refused add -t null --poll 10001
	refused add -t null -q 0
	refused add -t null -q 4097
	refused add -t null --threads 0
	refused add -t null --timeout 0
	refused add -t null -n 1048576
	refused add -t null -n -1
	refused add -t null -n abc
}

@test "add: sizes" {
	for size in 0 511 1000 16EiB 8EiB 8E 10EB 20EB 1Kb 1kib 1k 1KIB 1Ki 1BB 1iB G KiB '1 G' 1.5G -1G 0x200; do
		refused add -t null -s "$size"
	done
	for size in 513 0 256 8192 1000 1 4097; do
		refused add -t null --block-size "$size"
	done
	for size in 256 3000 2M 0 4097; do
		refused add -t null --physical-block-size "$size"
	done
	for size in 0 2048 4097 5000 33M 32769K; do
		refused add -t null --max-io "$size"
	done
	refused_for 1536 add -t null --block-size 1024 -s 1536
	refused_for 512 add -t null --block-size 4096 --physical-block-size 512
}

@test "add: options that do not go together" {
	refused_for threads add -t null -q 2 --threads 3
	refused_for threads add -t null -q 2 --threads 1
	refused_for json add -t null --json --foreground
	refused add -t null extra
	refused add -t null -- -b
}

@test "del: nothing is deleted without a clear word" {
	refused_for "which device" del
	refused_for "which device" del --force
	refused del abc
	refused_for 1 del -1
	refused_for "''" del ''
	refused_for all del --all 0
	refused_for abc del 0 abc 1
	refused_for abc del --ignore-missing abc
	for word in ' 0' '0 ' +0 0x0 1048576 ublkb0 /dev/ublkb /dev/ublkb-1 /dev/ublkbx /dev/ublkb0p1 \
		/dev/ublkd0 /dev/sda /dev/../dev/ublkb0 /dev/ublk-control '*' . 99999999999; do
		refused del "$word"
	done
	refused del 0 --wait -1
	refused del 0 --wait 86401
	refused del 0 --timeout 0
	refused del 0 --timeout 86401
}

@test "list: columns, states, ids" {
	refused list -o nonsense
	refused_for nonsense list -o ID,nonsense
	refused_for nonsense list -o +nonsense
	refused_for nonsense list --json -o nonsense
	refused_for columns list -o ''
	for word in ',' + 'ID,' ',ID' 'ID,,SIZE' '+ID,' 'ID SIZE' '+,ID' ++ID; do
		refused_for column list -o "$word"
	done
	refused list --state nonsense
	refused list --state LIVE
	refused_for state list --state ''
	refused list abc
	refused list 0 /dev/sda
}

@test "feature and help: operands" {
	refused feature extra
	refused help nonsense
	refused_for del help add del
}

@test "a word with control characters stays one line and reaches no terminal" {
	for word in $'a\nb' $'a\rb' $'\e[31m' $'a\tb'; do
		program add -t "$word"
		failed_with 2
		[ -z "$(tr -d '[:print:]' <<<"$stderr" | tr -d '\n')" ]
	done
	# nor does a very long one
	program add -t "$(printf '%5000s' '' | tr ' ' x)"
	failed_with 2
	program del "$(printf '%5000s' '' | tr ' ' 1)"
	failed_with 2
}

@test "wrong usage is found before the driver is looked for" {
	# also where it would be refused for want of a driver or of permission
	refused add -t null -d 0
	refused_for operand add -t null extra
	refused del 0 abc
	refused_for nonsense list -o nonsense
}
