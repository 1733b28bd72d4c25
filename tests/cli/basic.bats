#!/usr/bin/env bats
# Help, version, output that cannot be written, a machine without the driver.
#
# shellcheck disable=SC2154,SC2016 # set by bats and common.bash; expanded elsewhere

load common

commands() {
	ublkctl --dump-cli | jq -r '.commands[].name'
}

no_driver_here() {
	[ ! -e /dev/ublk-control ] || skip "this machine has a ublk driver"
}

# Status 3 within a second, naming the module and how to load it. The machine can be busy with other
# things: the best of three counts.
no_driver() { # WORD...
	local start best=99999999 took

	for _ in 1 2 3; do
		start=${EPOCHREALTIME/./}
		program "$@"
		took=$((${EPOCHREALTIME/./} - start))
		[ "$took" -ge "$best" ] || best=$took
		failed_with 3
		[[ $stderr == "ublkctl: $1: "* ]]
		[[ $stderr == *ublk_drv* && $stderr == *modprobe* ]]
	done
	[ "$best" -lt 1000000 ]
}

@test "help of every command, three ways, with every option and column" {
	for command in $(commands); do
		program help "$command"
		[ "$status" -eq 0 ]
		[ -z "$stderr" ]
		[[ ${lines[0]} == "Usage: ublkctl $command"* ]]
		text=$output
		for word in --help -h; do
			program "$command" "$word"
			[ "$status" -eq 0 ]
			[ -z "$stderr" ]
			[ "$output" = "$text" ]
		done
		while read -r name; do
			grep -q -e "--$name\>" <<<"$text"
		done < <(ublkctl --dump-cli | jq -r --arg n "$command" '.commands[] | select(.name == $n).options[].name')
		while read -r name; do
			grep -qE "^ *$name\>" <<<"$text"
		done < <(ublkctl --dump-cli | jq -r --arg n "$command" '.commands[] | select(.name == $n).columns[].name')
	done
}

@test "the overview names every command and target" {
	program help
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	text=$output
	for word in --help -h; do
		program "$word"
		[ "$status" -eq 0 ]
		[ "$output" = "$text" ]
	done
	while IFS=$'\t' read -r name summary; do
		grep -qE "^ +$name +$summary\$" <<<"$text"
	done < <(ublkctl --dump-cli | jq -r '.commands[] | "\(.name)\t\(.summary)"')
	for target in $(ublkctl --dump-cli | jq -r '.commands[].options[] | select(.name == "type").words[]'); do
		grep -qE "^ +$target +[a-z]" <<<"$text"
	done
}

@test "help lines fit a terminal of 100 columns" {
	for command in $(commands); do
		run ! grep -E '.{101}' <(ublkctl help "$command")
	done
}

@test "--version: own, and liburing's" {
	for word in --version -V; do
		program "$word"
		[ "$status" -eq 0 ]
		[ -z "$stderr" ]
		[[ ${lines[0]} =~ ^ublkctl\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
		[[ ${lines[1]} == *liburing*[0-9].[0-9]* ]]
		[ "${lines[0]}" = "ublkctl $(ublkctl --dump-cli | jq -r .version)" ]
	done
}

@test "the dump is JSON and not advertised" {
	ublkctl --dump-cli | jq -e '.commands | map(.name) == ["add", "del", "list", "recover", "restart", "quiesce", "stop", "start", "resize", "show", "set-affinity", "stat", "bench", "feature", "help"]'
	ublkctl --dump-cli | jq -e '[.exit_statuses[].status] == [0, 1, 2, 3, 4, 5, 6, 7, 128]'
	run ! grep -r dump-cli <(ublkctl help) <(ublkctl --help)
}

@test "a target that is another name says of which" {
	[[ $(ublkctl help) == *"loop       the same as file"* ]]
}

@test "every option of a target is refused with another one" {
	truncate -s 1M "$BATS_TEST_TMPDIR/backing"
	for words in "--file x" "--offset 0" "--io auto" --create --no-discard --force; do
		# shellcheck disable=SC2086 # words
		program add -t null $words
		failed_with 2
		[[ $stderr == *"${words% *}: only with -t file"* ]]
	done
	for target in file loop; do
		program add -t "$target" -f "$BATS_TEST_TMPDIR/backing" --null-data zeros
		failed_with 2
		[[ $stderr == *"--null-data: only with -t null"* ]]
	done
}

@test "long options are not to be abbreviated" {
	for words in "add --typ null" "add --typ=null" "del --al" "list --colum ID" "feature --js"; do
		# shellcheck disable=SC2086 # words
		program $words
		failed_with 2
		[[ $stderr == *"abbreviated"* ]]
	done
}

@test "a full standard output is status 1 with a message" {
	tree mixed
	for words in help --help --version "help add" "list --help" list "list --json" "list --raw" \
		"list --noheadings -o ID" "list --list-columns" "list 0"; do
		# shellcheck disable=SC2086 # words
		run --separate-stderr bash -c 'exec "$@" >/dev/full' bash "$PWD/$BUILD/ublkctl" $words
		[ "$status" -eq 1 ] || { echo "$words: status $status"; return 1; }
		grep -q '^ublkctl: .*: No space left on device$' <<<"$stderr"
	done
	run --separate-stderr bash -c 'exec "$1" --dump-cli >/dev/full' bash "$PWD/$BUILD/ublkctl"
	failed_with 1
}

@test "a closed standard output is status 1 with a message" {
	tree mixed
	for words in help --version "help add" list "list --json" "list --list-columns"; do
		# shellcheck disable=SC2086 # words
		run --separate-stderr bash -c 'exec "$@" >&-' bash "$PWD/$BUILD/ublkctl" $words
		[ "$status" -eq 1 ] || { echo "$words: status $status"; return 1; }
		grep -q '^ublkctl: .*standard output' <<<"$stderr"
	done
}

@test "a reader that goes away early does no harm to the shell" {
	run bash -c 'set -o pipefail; "$1" help | true; s=$?; [ "$s" = 0 ] || [ "$s" = 1 ] || [ "$s" = 141 ]' \
		bash "$PWD/$BUILD/ublkctl"
	[ "$status" -eq 0 ]
}

@test "a closed standard error changes neither result nor status" {
	tree mixed
	[ "$(bash -c 'exec "$@" 2>&-' bash "$PWD/$BUILD/ublkctl" list --json)" = "$(json)" ]
	run bash -c 'exec "$@" 2>&-' bash "$PWD/$BUILD/ublkctl" add -t nonsense
	[ "$status" -eq 2 ]
	[ -z "$output" ]
}

@test "no driver: status 3 within a second, with what to do" {
	no_driver_here
	no_driver add -t null
	no_driver add -t null -b --foreground
	no_driver add -t null --data-mode best
	truncate -s 1M "$BATS_TEST_TMPDIR/backing"
	no_driver add -t file -f "$BATS_TEST_TMPDIR/backing"
	no_driver add -t loop -f "$BATS_TEST_TMPDIR/new" --create -s 1M
	[ ! -e "$BATS_TEST_TMPDIR/new" ]
	no_driver del 0
	no_driver del --all
	no_driver del 0 1 --ignore-missing
	no_driver list
	no_driver list --json
	no_driver feature
	no_driver feature --json
}

# A lock as a server has it on its backing, for so many seconds.
hold_lock() { # FILE SECONDS
	perl -e 'use Fcntl; open(F, "+<", $ARGV[0]) or die; # F_OFD_SETLK, 64 bits
		my $lock = pack("s s x4 q q i x4", F_WRLCK, 0, 0, 0, 0);
		fcntl(F, 37, $lock) or die;
		open(R, ">", "$ARGV[0].locked"); close(R); select(undef, undef, undef, $ARGV[1])' "$@" 3>&- &
	holder=$!
	until [ -e "$1.locked" ]; do
		kill -0 "$holder" || return 1
		sleep 0.01
	done
}

@test "a backing that somebody is about to let go of is waited for, not for ever" {
	no_driver_here
	local img=$BATS_TEST_TMPDIR/backing
	truncate -s 1M "$img"
	hold_lock "$img" 0.3
	no_driver add -t file -f "$img"
	rm "$img.locked"
	hold_lock "$img" 60
	run --separate-stderr ublkctl add -t file -f "$img"
	kill "$holder"
	failed_with 5
	[[ $stderr == "ublkctl: add: $img is attached already" ]]
}

@test "no driver is no question of permission" {
	no_driver_here
	[ "$(id -u)" = 0 ] || skip "needs root to become another user"
	bin=$(mktemp -d)
	cp "$BUILD/ublkctl" "$bin/"
	chmod 755 "$bin"
	for words in "add -t null" "del 0" list feature; do
		# shellcheck disable=SC2086 # words
		run --separate-stderr setpriv --reuid 65534 --regid 65534 --clear-groups "$bin/ublkctl" $words
		failed_with 3
		[[ $stderr == *ublk_drv* ]]
	done
	rm -r "$bin"
}

@test "nothing was made in any of this" {
	no_driver_here
	ublkctl add -t null || true
	[ ! -e /run/ublkctl ]
	[ -z "$(pgrep -x ublkctl)" ]
}
