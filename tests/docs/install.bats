#!/usr/bin/env bats
# make install and uninstall.
#
# shellcheck disable=SC2154,SC2016 # set by bats and common.bash; expanded elsewhere

load common

# As a packager calls it, whatever make runs these tests.
make_clean() {
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make --no-print-directory BUILD="$BUILD" ${S:+S="$S"} \
		DESTDIR="$BATS_TEST_TMPDIR/root" "$@"
}

installed() {
	(cd "$BATS_TEST_TMPDIR/root" && find . -not -type d -printf '%P %m\n' | sort)
}

@test "install puts program, page and completion in place, uninstall leaves none of them" {
	make_clean install
	same "installed files" "$(printf '%s\n' 'usr/local/sbin/ublkctl 755' \
		'usr/local/share/bash-completion/completions/ublkctl 644' \
		'usr/local/share/man/man8/ublkctl.8 644')" "$(installed)"
	cmp "$BUILD/ublkctl" "$BATS_TEST_TMPDIR/root/usr/local/sbin/ublkctl"
	cmp "$man" "$BATS_TEST_TMPDIR/root/usr/local/share/man/man8/ublkctl.8"
	[ "$("$BATS_TEST_TMPDIR/root/usr/local/sbin/ublkctl" --version | head -n 1)" = \
		"$(ublkctl --version | head -n 1)" ]
	install -m 644 /dev/null "$BATS_TEST_TMPDIR/root/usr/local/sbin/other"
	make_clean uninstall
	[ "$(installed)" = "usr/local/sbin/other 644" ]
	make_clean uninstall
}

@test "PREFIX and the directories can be chosen" {
	make_clean install PREFIX=/usr MANDIR=/opt/man
	same "installed files" "$(printf '%s\n' 'opt/man/man8/ublkctl.8 644' 'usr/sbin/ublkctl 755' \
		'usr/share/bash-completion/completions/ublkctl 644')" "$(installed)"
	make_clean uninstall PREFIX=/usr MANDIR=/opt/man
	[ -z "$(installed)" ]
}

@test "the umask of the caller does not matter" {
	(
		umask 077
		make_clean install
	)
	[ "$(installed | cut -d ' ' -f 2 | sort -u | tr '\n' ' ')" = "644 755 " ]
	[ -z "$(find "$BATS_TEST_TMPDIR/root/usr" -type d -not -perm 755)" ]
}
