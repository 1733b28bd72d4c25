# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Packages of other Debian suites than this machine's, without touching its own apt; sourced. Needs from its
# user: $work, a directory for it, and die TEXT....
#
# shellcheck disable=SC2154 # set by its users

# Address of a Debian mirror as this machine's own apt uses it. The package lists may be absent (in
# a fresh container image), then only the addresses of an update say it.
apt_mirror() {
	if [ -n "${UBLKCTL_VM_MIRROR:-}" ]; then
		printf '%s\n' "$UBLKCTL_VM_MIRROR"
		return
	fi
	{
		# shellcheck disable=SC2016 # apt fills these in
		apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 'Created-By: Packages'
		apt-get update --print-uris 2>/dev/null |
			sed -n "s,^'\([^']*/debian/*\)/dists/\([a-z]*\)/InRelease'.*,Debian \2 \1,p"
	} | awk '$1 == "Debian" && $2 !~ /-/ && $3 !~ /security/ { print $3; exit }'
}

# A private apt, with its own sources, lists and cache below $work; as the caller, without _apt.
apt_with() { # PROGRAM ARG...
	local program=$1
	shift
	"$program" -o Dir::State="$work/apt" -o Dir::State::Lists="$work/apt/lists" \
		-o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt/cache" \
		-o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User= \
		-o Acquire::Languages=none -o Debug::NoLocking=1 -o Acquire::Retries=3 "$@"
}

apt_lists() { # SUITE...
	local mirror keys=/usr/share/keyrings/debian-archive-keyring.gpg suite
	mirror=$(apt_mirror)
	[ -n "$mirror" ] || die "no Debian mirror is configured in apt; set UBLKCTL_VM_MIRROR"
	[ -r "$keys" ] || die "$keys is missing (package debian-archive-keyring)"
	mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
	: >"$work/apt/status"
	for suite in "$@"; do
		printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$mirror" "$suite"
	done >"$work/apt/sources.list"
	apt_with apt-get -qq update >"$work/log" 2>&1 ||
		die "cannot fetch the package lists of $*: $(grep -m 1 '^[EW]:' "$work/log")"
}

apt_depends() { # PACKAGE: its dependencies by name, one a line; fails when it cannot be fetched
	apt_with apt-cache show --no-all-versions "$1" 2>/dev/null >"$work/show"
	[ -s "$work/show" ] || return 1
	sed -n '/^Depends: /{s///;s/ *([^)]*)//g;s/[,|] */\n/g;p;q}' "$work/show" | sed 's/ *$//'
}
