#!/usr/bin/env bats
# The completion: made from the program, and it completes.
#
# shellcheck disable=SC2154,SC2016 # set by bats and common.bash; expanded elsewhere

load common

# Completes the words, the last one being typed, with a fresh shell; prints what is offered.
# With "package" in front, the bash-completion package is loaded first.
complete_words() {
	local package=''

	if [ "$1" = package ]; then
		package=/usr/share/bash-completion/bash_completion
		shift
	fi
	bash --norc -c '
		package=$1 program=$2
		shift 2
		[ -z "$package" ] || . "$package"
		. completions/ublkctl
		handler=$(complete -p ublkctl)
		handler=${handler#* -F }
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
		"${handler%% *}" "$program" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
		printf "%s\n" "${COMPREPLY[@]}"' bash "$package" "$PWD/$BUILD/ublkctl" "$@"
}

offers() { # EXPECTED WORD...
	local expected=$1

	shift
	same "$*<TAB>" "$expected" "$(complete_words "$@")"
}

@test "the committed completion is what generate prints" {
	completions/generate "$BUILD/ublkctl" | diff -u completions/ublkctl -
}

@test "generate without a program, or with one that fails, is an error" {
	run ! completions/generate
	run ! completions/generate /bin/false
	run ! completions/generate /nonexistent
}

@test "it is sourced without output or error" {
	run bash --norc -euc '. completions/ublkctl'
	[ "$status" -eq 0 ]
	[ -z "$output" ]
}

@test "ublkctl <TAB>: every command" {
	offers "$(cli '.commands[].name'; echo --help; echo --version)" ublkctl ''
	offers feature ublkctl f
	offers --version ublkctl --v
}

@test "ublkctl COMMAND -<TAB>: every option of the command" {
	for command in $(cli '.commands[].name'); do
		offers "$(cli --arg n "$command" '.commands[] | select(.name == $n).options[] |
			(if .letter then "-\(.letter)" else empty end), "--\(.name)"')" ublkctl "$command" -
	done
	offers --type ublkctl add --ty
	offers "" ublkctl nonsense -
}

@test "words of an option" {
	offers "$(cli '.commands[] | select(.name == "add").options[] | select(.name == "type").words[]')" ublkctl add -t ''
	offers null ublkctl add --type = n
	offers "$(printf '%s\n' null file loop)" ublkctl add --type =
	offers null ublkctl add -bt n
	offers "$(cli '.commands[].options[] | select(.name == "data-mode").words[]')" ublkctl add --data-mode ''
	offers "$(printf '%s\n' auto-zc auto-zc-fallback)" ublkctl add --data-mode au
	offers "$(printf '%s\n' auto direct buffered)" ublkctl add --io ''
	offers none ublkctl add -t null -z --null-data n
	offers "$(printf '%s\n' live dead quiesced fail-io)" ublkctl list --state ''
	offers quiesced ublkctl list --state q
}

@test "files behind --file" {
	touch "$BATS_TEST_TMPDIR/disk.img" "$BATS_TEST_TMPDIR/disk.iso" "$BATS_TEST_TMPDIR/other"
	for word in -f --file; do
		[ "$(complete_words ublkctl add "$word" "$BATS_TEST_TMPDIR/d" | sort)" = \
			"$(printf '%s\n' "$BATS_TEST_TMPDIR/disk.img" "$BATS_TEST_TMPDIR/disk.iso")" ]
	done
}

@test "no words where a number is due" {
	offers "" ublkctl add -q ''
	offers "" ublkctl add --offset ''
	offers "" ublkctl del --timeout ''
}

@test "columns: asked from the program, behind + and commas, none twice" {
	offers "$(cli '.commands[] | select(.name == "list").columns[].name')" ublkctl list -o ''
	offers "$(printf '%s\n' +BATCH +BACKING +BLOCK-SIZE)" ublkctl list -o +B
	offers "ID,SIZE" ublkctl list -o ID,SI
	offers "$(cli '.commands[] | select(.name == "stat").columns[].name')" ublkctl stat -o ''
	offers "ID,SIZE" ublkctl list --columns = ID,si
	offers "$(printf '%s\n' +batch,BACKING +batch,BLOCK-SIZE)" ublkctl list -o +batch,b
	offers "" ublkctl list -o nonsense
}

@test "commands behind help" {
	offers "$(cli '.commands[].name')" ublkctl help ''
}

@test "device ids and paths: asked from the program" {
	# a stand-in that knows three devices, one of them without a disk
	mkdir "$BATS_TEST_TMPDIR/bin"
	cat >"$BATS_TEST_TMPDIR/bin/ublkctl" <<-'END'
		#!/bin/bash
		echo "a message" >&2
		case "$*" in
		"list --noheadings --raw -o ID") printf '%s\n' 0 1 10 ;;
		"list --noheadings --raw -o DEVICE") printf '%s\n' /dev/ublkb0 - /dev/ublkb10 ;;
		*) exit 2 ;;
		esac
	END
	chmod +x "$BATS_TEST_TMPDIR/bin/ublkctl"
	complete_with() {
		bash --norc -c '. completions/ublkctl
			program=$1
			shift
			COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
			_ublkctl "$program"
			echo "${COMPREPLY[*]}"' bash "$BATS_TEST_TMPDIR/bin/ublkctl" "$@" 2>&1
	}
	[ "$(complete_with ublkctl del '')" = "0 1 10" ]
	[ "$(complete_with ublkctl del -f 1)" = "1 10" ]
	[ "$(complete_with ublkctl del 0 /)" = "/dev/ublkb0 /dev/ublkb10" ]
	[ "$(complete_with ublkctl list -- 0)" = "0" ]
	[ "$(complete_with ublkctl del -- -)" = "" ]
	[ "$(complete_with ublkctl add '')" = "" ]
}

@test "a program that fails gives no words and no message" {
	run bash --norc -c '. completions/ublkctl
		COMP_WORDS=(ublkctl del "") COMP_CWORD=2
		_ublkctl /nonexistent/ublkctl
		echo "${#COMPREPLY[@]}"'
	[ "$output" = 0 ]
}

@test "the same with the bash-completion package loaded" {
	[ "$(complete_words package ublkctl add --ty)" = --type ]
	[ "$(complete_words package ublkctl add -t '' | tr '\n' ' ')" = "null file loop " ]
	[ "$(complete_words package ublkctl list -o +BA | tr '\n' ' ')" = "+BATCH +BACKING " ]
}

@test "readline itself completes with it" {
	# an interactive shell on a pseudo terminal: the only check that bash calls the function as meant
	mkdir "$BATS_TEST_TMPDIR/path"
	ln -s "$PWD/$BUILD/ublkctl" "$BATS_TEST_TMPDIR/path/ublkctl"
	printf '%s\n' 'PS1="$ "' 'bind "set enable-bracketed-paste off"' ". $PWD/completions/ublkctl" \
		"PATH=$BATS_TEST_TMPDIR/path:\$PATH" >"$BATS_TEST_TMPDIR/rc"
	printf 'ublkctl list -o +BATCH,PHY\t\nublkctl add --phy\t4K\nexit\n' >"$BATS_TEST_TMPDIR/keys"
	run timeout 20 script -qefc "bash --noprofile --rcfile $BATS_TEST_TMPDIR/rc -i" /dev/null \
		<"$BATS_TEST_TMPDIR/keys"
	[[ $output == *"list -o +BATCH,PHYS-BLOCK-SIZE"* ]]
	[[ $output == *"add --physical-block-size 4K"* ]]
}
