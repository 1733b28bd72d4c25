#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# The test programs themselves: tests/vm/run, tests/run, tests/deps.
#
# shellcheck disable=SC2030,SC2031,SC2154 # bats runs each test in a process and sets these variables
# shellcheck disable=SC2016 # text for other shells

bats_require_minimum_version 1.5.0

# What the first guest is asked to do; later tests look at what came back.
first_guest() {
	cat <<'END'
sleep 1000 &
printf '[%s]' "$@"; echo
echo reopened >/dev/stdout
echo complaint >&2
echo reopened >/dev/stderr
pwd
uname -r
cat | wc -c
env | sort >"$UBLKCTL_HARNESS_DIR/environment"
mount >"$UBLKCTL_HARNESS_DIR/mounts"
grep . /sys/devices/system/cpu/online >"$UBLKCTL_HARNESS_DIR/cpus"
stat -c %F /dev/ublk-control >"$UBLKCTL_HARNESS_DIR/control"
modprobe -n -v loop >"$UBLKCTL_HARNESS_DIR/modprobe"
touch harness-was-here && ls harness-was-here
head -c 3000000 /dev/zero | tr '\0' x
exit 3
END
}

setup_file() {
	export DIR="$BATS_FILE_TMPDIR/with a space"
	mkdir "$DIR"
	first_guest >"$DIR/job"
	cp -r tests "$DIR/"
	export UBLKCTL_HARNESS_DIR=$DIR SECRET=1
	export CACHE=${UBLKCTL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ublkctl}
	# From a directory that the guest's own /tmp would hide.
	(
		cd "$DIR" || exit
		export TMPDIR=$BATS_FILE_TMPDIR
		status=0
		tests/vm/run --share "$DIR" bash job "a b" "it's" '$HOME "x" *' '' \
			>stdout 2>stderr || status=$?
		echo $status >status
	)
}

# Guests that this test file started and that still run.
guests() {
	pgrep -f "qemu-system.*$BATS_RUN_TMPDIR" || true
}

fake() { # NAME TEXT: a program of this name, first in PATH
	mkdir -p "$BATS_TEST_TMPDIR/bin"
	printf '#!/bin/sh\n%s\n' "$2" >"$BATS_TEST_TMPDIR/bin/$1"
	chmod +x "$BATS_TEST_TMPDIR/bin/$1"
	case $PATH in
	"$BATS_TEST_TMPDIR/bin":*) ;;
	*) PATH=$BATS_TEST_TMPDIR/bin:$PATH ;;
	esac
}

@test "vm: the status comes back, with a process left behind that holds the output" {
	cat "$DIR/stderr"
	[ "$(cat "$DIR/status")" = 3 ]
}

@test "vm: arguments arrive as they are, output and errors apart and whole" {
	head -n 2 "$DIR/stdout"
	[ "$(sed -n 1p "$DIR/stdout")" = "[a b][it's][\$HOME \"x\" *][]" ]
	[ "$(sed -n 2p "$DIR/stdout")" = reopened ]
	[ "$(tail -n 1 "$DIR/stdout" | wc -c)" = 3000000 ]
	grep -v '^vm: ' "$DIR/stderr" | diff - <(printf 'complaint\nreopened\n')
}

@test "vm: same directory, empty stdin, few variables, control node, modules" {
	[ "$(sed -n 3p "$DIR/stdout")" = "$DIR" ]
	[ "$(sed -n 5p "$DIR/stdout")" = 0 ]
	grep -qx "UBLKCTL_HARNESS_DIR=$DIR" "$DIR/environment"
	grep -qx HOME=/root "$DIR/environment"
	run -1 grep SECRET "$DIR/environment"
	[ "$(cat "$DIR/control")" = "character special file" ]
	[ "$(cat "$DIR/cpus")" = 0-1 ]
	grep -q 'insmod .*/loop\.ko' "$DIR/modprobe"
	grep -q '^[^ ]* on /sys/fs/cgroup type cgroup2' "$DIR/mounts"
	grep -q '^[^ ]* on /tmp type tmpfs' "$DIR/mounts"
}

@test "vm: only a shared directory is written" {
	[ "$(sed -n 6p "$DIR/stdout")" = harness-was-here ]
	[ -e "$DIR/harness-was-here" ]
	cd "$BATS_TEST_TMPDIR"
	run -0 "$BATS_TEST_DIRNAME/vm/run" sh -c 'touch here && ls here'
	[ "$output" = here ]
	[ ! -e here ]
}

@test "vm: nothing stays behind" {
	[ -z "$(guests)" ]
	run -0 find "$BATS_FILE_TMPDIR" -name 'ublkctl-vm.*'
	[ -z "$output" ]
}

@test "vm: a cached kernel needs no network; one processor, a disk, no driver" {
	fake apt-get 'touch "$0.called"; exit 1'
	truncate -s 8M "$BATS_TEST_TMPDIR/disk,1"
	run -0 --separate-stderr tests/vm/run --cpus=1 --mem 1G --no-ublk \
		--disk "$BATS_TEST_TMPDIR/disk,1" -- sh -c \
		'nproc; cat /sys/block/vda/size; test ! -e /dev/ublk-control; printf abc >/dev/vda'
	[ "$output" = $'1\n16384' ]
	[ ! -e "$BATS_TEST_TMPDIR/bin/apt-get.called" ]
	[ "$(head -c 3 "$BATS_TEST_TMPDIR/disk,1")" = abc ]
}

@test "vm: two at once, another kernel, a signal, a command that is not there" {
	tests/vm/run no-such-command >"$BATS_TEST_TMPDIR/other" 2>&1 3>&- 4>&- &
	other=$! other_status=0
	run -143 tests/vm/run --kernel 6.12 sh -c 'uname -r; kill -TERM $$'
	[[ $output == *6.12.* ]]
	wait $other || other_status=$?
	[ "$other_status" = 127 ]
	grep -q no-such-command "$BATS_TEST_TMPDIR/other"
}

@test "vm: a warning in the kernel log fails the run and is shown" {
	export UBLKCTL_VM_LOG=$BATS_TEST_TMPDIR/log
	run -123 --separate-stderr tests/vm/run sh -c \
		'echo ready; echo "<4>WARNING: CPU: 0 PID: 1 at fs/x.c:1 x+0x1/0x2" >/dev/kmsg; exit 4'
	[ "$output" = ready ]
	[[ $stderr == *"at fs/x.c:1"* ]]
	[[ ${stderr_lines[-1]} == "vm: "*"kernel log"*4* ]]
	grep -q 'Linux version' "$UBLKCTL_VM_LOG"
}

@test "vm: a panic is one clear failure" {
	# a moment for the output on its way through the pipe
	run -123 --separate-stderr tests/vm/run sh -c 'echo before; sleep 1; echo c >/proc/sysrq-trigger; sleep 60'
	[ "$output" = before ]
	[[ $stderr == *"Kernel panic - not syncing"* ]]
	[[ ${stderr_lines[-1]} == "vm: "*"kernel log"* ]]
}

@test "vm: a guest that ends by itself is a failure" {
	run -125 --separate-stderr tests/vm/run sh -c \
		'echo 1 >/proc/sys/kernel/sysrq; echo b >/proc/sysrq-trigger; sleep 60'
	[[ ${stderr_lines[-1]} == "vm: the guest ended"* ]]
}

@test "vm: time runs out" {
	run -124 --separate-stderr tests/vm/run --timeout 3 sh -c 'echo before; sleep 100'
	[ "$output" = before ]
	[ "${stderr_lines[-1]}" = "vm: timed out after 3 seconds" ]
}

@test "vm: ended by a signal it takes the guest and its files with it" {
	export TMPDIR=$BATS_TEST_TMPDIR
	tests/vm/run sh -c 'echo up; sleep 100' >"$TMPDIR/out" 2>"$TMPDIR/err" 3>&- 4>&- &
	pid=$! ended=0
	for ((i = 0; i < 600; i++)); do
		! grep -q up "$TMPDIR/out" || break
		sleep 0.1
	done
	grep -q up "$TMPDIR/out"
	[ -n "$(guests)" ]
	kill -TERM $pid
	wait $pid || ended=$?
	[ "$ended" = 143 ]
	[ "$(cat "$TMPDIR/err")" = "vm: ended by SIGTERM" ]
	[ -z "$(guests)" ]
	[ -z "$(find "$TMPDIR" -name 'ublkctl-vm.*')" ]
}

@test "vm: KVM that runs no guest is tried once" {
	[ -w /dev/kvm ] || skip "no /dev/kvm here"
	fake qemu-system-x86_64 "case \$* in
		*'accel kvm'*) echo tried >>'$BATS_TEST_TMPDIR/tried'; exit 1 ;;
		esac
		exec $(command -v qemu-system-x86_64) \"\$@\""
	export UBLKCTL_CACHE=$BATS_TEST_TMPDIR/cache
	mkdir "$UBLKCTL_CACHE"
	ln -s "$CACHE/kernels" "$CACHE/suites" "$UBLKCTL_CACHE/"
	run -0 tests/vm/run true
	run -0 tests/vm/run true
	[ "$(cat "$BATS_TEST_TMPDIR/tried")" = tried ]
}

@test "vm: wrong usage is 2, what is missing 125" {
	run -2 tests/vm/run --frobnicate true
	[[ ${lines[0]} == *"unknown option --frobnicate"* ]]
	run -2 tests/vm/run
	run -2 tests/vm/run --mem
	run -2 tests/vm/run --mem lots true
	run -2 tests/vm/run --timeout=-1 true
	run -2 tests/vm/run --disk /no/such/file true
	run -2 tests/vm/run --share /no/such/directory true
	run -125 tests/vm/run --kernel /no/such/vmlinuz true
	[[ $output == *"/no/such/vmlinuz"* ]]
	run -0 tests/vm/run --help
	[[ $output == *"--kernel"* ]]
}

# A program that prints these lines of TAP and ends with STATUS.
tap() { # STATUS TEXT
	printf '#!/bin/sh\ncat <<END\n%s\nEND\nexit %s\n' "$2" "$1" >"$BATS_TEST_TMPDIR/program"
	chmod +x "$BATS_TEST_TMPDIR/program"
	run tests/run "$BATS_TEST_TMPDIR/program"
	printf '%s\n' "$output"
}

@test "run: counts what passes and what is skipped" {
	tap 0 $'1..3\nok 1 - one\nok 2 two # skip not now\n# comment\nok 3 - three'
	[ "$status" = 0 ]
	[ "${lines[-1]}" = "2 passed, 0 failed, 1 skipped" ]
	[[ $output == *"two: not now"* ]]
}

@test "run: shows what failed, with what it said" {
	tap 1 $'1..2\nnot ok 1 - one\n# because\nok 2 - two\n# quiet'
	[ "$status" = 1 ]
	[ "${lines[-1]}" = "1 passed, 1 failed, 0 skipped" ]
	[[ $output == *"FAIL program: one"*"because"* ]]
	[[ $output != *quiet* ]]
}

@test "run: several plans, output that looks like a result, skips of cmocka" {
	tap 0 $'1..2\nok 1 - a\nok 99 fake\nok 2 - b\n# ok - group\n1..1\nnot ok 1 # SKIP c\n# ok - group'
	[ "$status" = 0 ]
	[ "${lines[-1]}" = "2 passed, 0 failed, 1 skipped" ]
}

@test "run: a group that cannot be set up is a failure" {
	tap 1 $'1..2\nnot ok 0 - group [  FAILED  ] GROUP SETUP\n# ok - group\n1..1\nok 1 - b'
	[ "$status" = 1 ]
	[[ $output == *"GROUP SETUP"* ]]
}

@test "run: a program that dies half-way is a failure" {
	tap 0 $'1..3\nok 1 - one'
	[ "$status" = 1 ]
	[[ $output == *"1 of 3"*"one"* ]]
	tap 139 $'1..1\nok 1 - one'
	[ "$status" = 1 ]
	[[ $output == *"status 139"* ]]
	[ "${lines[-1]}" = "1 passed, 1 failed, 0 skipped" ]
}

@test "run: no test at all is a failure" {
	tap 0 ""
	[ "$status" = 1 ]
	[ "${lines[-1]}" = "0 passed, 1 failed, 0 skipped" ]
	BUILD=$BATS_TEST_TMPDIR/none run -1 tests/run unit
	[ "${lines[-1]}" = "0 passed, 1 failed, 0 skipped" ]
}

@test "run: bats files: failure, time limit, filter, an abort" {
	# Not a here-document: bats would take its lines for tests of this file.
	printf '@test "%s" { %s; }\n' good true bad "echo because; false" slow "sleep 60" \
		>"$BATS_TEST_TMPDIR/x.bats"
	UBLKCTL_TEST_TIMEOUT=2 run -1 tests/run "$BATS_TEST_TMPDIR/x.bats"
	[ "${lines[-1]}" = "1 passed, 2 failed, 0 skipped" ]
	[[ $output == *because* && $output == *timeout* ]]
	run -0 tests/run --filter '^go+d' "$BATS_TEST_TMPDIR/x.bats"
	[ "${lines[-1]}" = "1 passed, 0 failed, 0 skipped" ]
	run -1 tests/run --filter nothing "$BATS_TEST_TMPDIR/x.bats"
	printf '@test "a" { true; }\n@test "b" { kill -9 $PPID $$; }\n' >"$BATS_TEST_TMPDIR/y.bats"
	UBLKCTL_TEST_TIMEOUT=2 run -1 tests/run "$BATS_TEST_TMPDIR/y.bats"
	[[ ${lines[-1]} == *" passed, 1 failed, 0 skipped" ]]
}

@test "run: dev beside other groups, one sum; a runner that dies is a failure" {
	local top=$BATS_TEST_TMPDIR/top
	mkdir -p "$top"/tests/{vm,cli,dev}
	cp tests/run "$top/tests"
	printf '#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n' >"$top/tests/vm/run"
	chmod +x "$top/tests/vm/run"
	printf '@test "c" { true; }\n@test "d" { skip so; }\n' >"$top/tests/cli/c.bats"
	printf '@test "v" { true; }\n@test "w" { false; }\n' >"$top/tests/dev/v.bats"
	export UBLKCTL_TEST_TIMEOUT=4
	run "$top/tests/run" dev cli dev-6.12
	printf '%s\n' "$output"
	[ "$status" = 1 ]
	[ "${lines[-1]}" = "3 passed, 2 failed, 1 skipped" ]
	[[ $output == *"FAIL dev-6.12: w"*"FAIL dev: w"*"dev: 1 passed, 1 failed, 0 skipped in "* ]]
	[ "$(grep -c 'passed, .* failed, .* skipped$' <<<"$output")" = 1 ]
	# shellcheck disable=SC2016 # for another shell
	printf '#!/bin/bash\nkill -KILL $(ps -o ppid= -p $$)\n' >"$top/tests/vm/run"
	run "$top/tests/run" cli dev
	[ "$status" = 1 ]
	[[ $output == *"FAIL dev: its runner died"* ]]
	[ "${lines[-1]}" = "1 passed, 1 failed, 1 skipped" ]
}

@test "run: wrong usage is 2" {
	run -2 tests/run
	run -2 tests/run --frobnicate unit
	run -2 tests/run frobnicate
	run -2 tests/run /no/such/file
}

@test "deps: silent when everything is there" {
	fake dpkg-query 'shift 3; for p; do echo "$p installed"; done'
	fake apt-get 'touch "$0.called"'
	run -0 tests/deps build test demo lint
	[ -z "$output" ]
	[ ! -e "$BATS_TEST_TMPDIR/bin/apt-get.called" ]
}

@test "deps: NO_INSTALL=1 names what is missing and how to get it" {
	fake dpkg-query 'shift 3; for p; do [ $p = make ] || [ $p = gcc ] || echo "$p installed"; done; exit 1'
	fake apt-get 'touch "$0.called"'
	NO_INSTALL=1 run -1 tests/deps build
	[ "$output" = "deps: missing: gcc make; install with: apt-get install gcc make" ]
	[ ! -e "$BATS_TEST_TMPDIR/bin/apt-get.called" ]
}

@test "deps: installs what is missing" {
	fake dpkg-query 'shift 3; for p; do [ $p = jq ] || echo "$p installed"; done; exit 1'
	fake apt-get 'echo "$@" >>"$0.called"'
	fake sudo 'exec "$@"'
	run -0 tests/deps demo
	[ "$output" = "deps: installing jq" ]
	grep -q 'update$' "$BATS_TEST_TMPDIR/bin/apt-get.called"
	grep -q 'install -y --no-install-recommends jq$' "$BATS_TEST_TMPDIR/bin/apt-get.called"
	fake apt-get 'echo E: no; exit 100'
	run -1 tests/deps demo
	[[ $output == *"E: no"*"cannot install jq"* ]]
}

@test "deps: a system without apt and dpkg" {
	mkdir "$BATS_TEST_TMPDIR/tools"
	for tool in bash env awk cut cat make pkg-config id; do
		ln -s "$(command -v $tool)" "$BATS_TEST_TMPDIR/tools/$tool"
	done
	run -1 env PATH="$BATS_TEST_TMPDIR/tools" bash -c 'PATH() { :; }; exec bash tests/deps build'
	[[ $output == *"missing: "*gcc* ]]
	[[ $output != *"apt-get install"* ]]
}

@test "deps: the names of a group; wrong usage is 2" {
	run -0 tests/deps --print build
	[[ $'\n'$output$'\n' == *$'\nliburing-dev\n'* ]]
	run -2 tests/deps
	run -2 tests/deps frobnicate
}
