# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Finding, fetching and caching the kernels of the throwaway guest; sourced by tests/vm/run.
#
# Cache:  kernels/RELEASE/vmlinuz and vmlinux, kernels/RELEASE/lib/modules/RELEASE,
#         kernels/RELEASE/initrd-* (busybox and the modules needed before the root is there),
#         suites/SUITE (release of the newest kernel of that suite when it was last fetched).
# Results of kernel_find: kernel_image, kernel_modules, kernel_release, kernel_base (where modprobe -d
# finds the modules), kernel_home (the cached directory, empty for a kernel given as a path).
#
# shellcheck disable=SC2034,SC2154 # shares variables with tests/vm/run
# shellcheck source-path=SCRIPTDIR source=apt.sh disable=SC1091
. "${BASH_SOURCE[0]%/*}/apt.sh"

readonly kernel_suites="trixie-backports trixie"

# Modules by purpose: boot ones must load, the others may be missing from a kernel.
readonly kernel_mods_boot="virtio_pci 9p 9pnet_virtio overlay"
readonly kernel_mods_disk="virtio_blk"
readonly kernel_mods_optional="ublk_drv"

# Of a module tree of some 100 MB a guest without such hardware never loads these.
readonly kernel_useless="sound drivers/gpu drivers/media drivers/infiniband drivers/net/wireless
drivers/net/ethernet drivers/iio drivers/staging drivers/hwmon drivers/usb drivers/bluetooth
drivers/input drivers/isdn drivers/platform drivers/mfd drivers/power drivers/thunderbolt
drivers/regulator drivers/comedi drivers/accel drivers/hid drivers/leds drivers/video net/bluetooth
net/mac80211 net/wireless drivers/gnss drivers/firewire drivers/pinctrl drivers/spi drivers/i2c"

kernel_cached() { # SPEC: prints the release that SPEC stands for, if it is in the cache
	local spec=$1 release
	case $spec in
	[0-9]*)
		release=$(cd "$cache/kernels" 2>/dev/null && printf '%s\n' "$spec" "$spec"[.+-]* |
			while read -r release; do [ ! -e "$release/vmlinuz" ] || echo "$release"; done |
			sort -V | tail -n 1)
		;;
	*) release=$(cat "$cache/suites/$spec" 2>/dev/null) || return 1 ;;
	esac
	[ -n "$release" ] && [ -e "$cache/kernels/$release/vmlinuz" ] && printf '%s\n' "$release"
}

# A kernel is one package, since 6.19 an empty one that needs linux-binary- and linux-modules-. It can
# still be listed when one of these is gone already: then there is no such kernel. linux-base-, which
# has the list of what is built in, can be done without.
kernel_packages() { # RELEASE: prints the names of all of them
	local release=$1 name names
	names=$(apt_depends "linux-image-$release") || return 1
	printf '%s\n' "linux-image-$release"
	if grep -qxF "linux-binary-$release" <<<"$names"; then
		for name in binary modules; do
			apt_depends "linux-$name-$release" >/dev/null || return 1
			printf '%s\n' "linux-$name-$release"
		done
	fi
	! apt_depends "linux-base-$release" >/dev/null || printf '%s\n' "linux-base-$release"
}

kernel_candidates() { # SPEC: prints the releases that the lists offer for SPEC, newest first
	local spec=$1
	case $spec in
	[0-9]*)
		apt_with apt-cache pkgnames "linux-image-$spec" | sed 's/^linux-image-//' |
			awk -v v="$spec" 'index($0, v) == 1 && substr($0, length(v) + 1, 1) ~ /^[.+-]?$/' |
			grep -E '^[0-9].*[0-9]-amd64$' | sort -rV
		;;
	*)
		apt_depends linux-image-amd64 | sed -n 's/^linux-image-\([0-9]\)/\1/p'
		;;
	esac
}

# Decompressed here once instead of by emulation at each boot, which takes a second. qemu enters such a
# kernel through its PVH note; one that does not unpack is started as it is.
kernel_decompress() { # DIR with vmlinuz: adds vmlinux
	local magic offset tool
	for tool in zstd:$'\x28\xb5\x2f\xfd' xz:$'\xfd7zXZ'; do
		magic=${tool#*:} tool=${tool%%:*}
		command -v "$tool" >/dev/null || continue
		offset=$(LC_ALL=C grep -aboF -m 1 -e "$magic" "$1/vmlinuz" | head -n 1 | cut -d : -f 1)
		[ -n "$offset" ] || continue
		# What follows the compressed part makes the tool complain at the end.
		tail -c "+$((offset + 1))" "$1/vmlinuz" | "$tool" -dc >"$1/.vmlinux" 2>/dev/null
		if [ "$(head -c 4 "$1/.vmlinux" | tr -d '\0')" = $'\x7fELF' ]; then
			mv "$1/.vmlinux" "$1/vmlinux"
			return
		fi
		rm -f "$1/.vmlinux"
	done
}

# The kernel image and the pruned module tree are all that is kept of the packages.
kernel_unpack() { # RELEASE
	local release=$1 deb tree useless
	for deb in "$work"/*.deb; do
		dpkg-deb -x "$deb" "$work/root" || die "cannot unpack ${deb##*/}"
		rm "$deb"
	done
	tree=$work/new/lib/modules/$release
	mkdir -p "$work/new/lib/modules"
	# Some kmod look below usr/lib instead.
	ln -s . "$work/new/usr"
	mv "$work/root/usr/lib/modules/$release" "$tree" 2>/dev/null ||
		mv "$work/root/lib/modules/$release" "$tree" 2>/dev/null || die "no modules in the packages of $release"
	mv "$tree/vmlinuz" "$work/new/" 2>/dev/null ||
		mv "$work/root/boot/vmlinuz-$release" "$work/new/vmlinuz" 2>/dev/null || die "no kernel in its packages"
	mv "$work/root/boot/config-$release" "$tree/config" 2>/dev/null
	for useless in $kernel_useless; do
		rm -rf "${tree:?}/kernel/$useless"
	done
	# depmod warns of files that some of these packages do not have; they are not needed.
	depmod -b "$work/new" "$release" 2>"$work/log" || die "depmod failed: $(head -n 1 "$work/log")"
}

kernel_fetch() { # SPEC: fetches it into the cache and prints its release
	local spec=$1 release packages size suites=$1
	command -v apt-get >/dev/null ||
		die "no apt here to fetch a kernel with: set UBLKCTL_VM_KERNEL and UBLKCTL_VM_MODULES"
	work=$(mktemp -d "$cache/fetch.XXXXXX") || die "cannot write to $cache"
	say "fetching kernel $spec"
	[[ $spec != [0-9]* ]] || suites=$kernel_suites
	# shellcheck disable=SC2086 # a list of words
	apt_lists $suites
	for release in $(kernel_candidates "$spec"); do
		packages=$(kernel_packages "$release") && break
		packages=''
	done
	[ -n "${packages:-}" ] || die "no kernel $spec among the packages of $suites"
	if [ ! -e "$cache/kernels/$release/vmlinuz" ]; then
		# shellcheck disable=SC2086
		size=$(apt_with apt-cache show --no-all-versions $packages |
			awk '/^Size: / { s += $2 } END { printf "%d", s / 1000000 }')
		say "downloading Linux $release ($size MB)"
		# shellcheck disable=SC2086
		(cd "$work" && apt_with apt-get -qq download $packages) >"$work/log" 2>&1 ||
			die "cannot download Linux $release: $(grep -m 1 '^[EW]:' "$work/log")"
		kernel_unpack "$release"
		mkdir -p "$cache/kernels"
		mv -T "$work/new" "$cache/kernels/$release" || die "cannot write to $cache/kernels"
	fi
	if [[ $spec != [0-9]* ]]; then
		mkdir -p "$cache/suites"
		echo "$release" >"$work/suite" && mv "$work/suite" "$cache/suites/$spec"
	fi
	rm -rf "$work"
	found=$release
}

# The initramfs that a kernel starts with, without what changes from run to run.
kernel_make_initrd() { # OUTPUT
	local dir=$tmp/base-initrd name purpose file
	mkdir -p "$dir"/{dev,proc,sys,new,host,lower,rw,vm/modules}
	cp "$(command -v busybox)" "$dir/vm/busybox"
	for purpose in boot disk optional; do
		name=kernel_mods_$purpose
		for name in ${!name}; do
			kernel_module_files "$name"
		done | awk '!seen[$0]++' >"$dir/files"
		while IFS= read -r file; do
			name=${file##*/}
			name=${name%.ko*}.ko
			kernel_uncompress "$file" >"$dir/vm/modules/$name" || die "cannot unpack $file"
			printf '%s\n' "$name"
		done <"$dir/files" >"$dir/vm/$purpose.list"
	done
	rm "$dir/files"
	kernel_cpio "$dir" >"$1" || die "cannot write $1"
	rm -rf "$dir"
}

kernel_module_files() { # NAME: prints the files to load for it, in order; none when built in
	modprobe -S "$kernel_release" -d "$kernel_base" --show-depends "$1" 2>/dev/null |
		sed -n 's/^insmod \(.*\.ko[.a-z0-9]*\).*/\1/p'
}

kernel_uncompress() { # FILE
	case $1 in
	*.xz) busybox xz -dc <"$1" ;;
	*.gz) busybox gzip -dc <"$1" ;;
	*.zst) zstd -qdc <"$1" ;;
	*) cat "$1" ;;
	esac
}

kernel_cpio() { # DIR: prints it as an initramfs
	(cd "$1" && find . -mindepth 1 | busybox cpio -o -H newc 2>/dev/null)
}

kernel_by_path() { # VMLINUZ
	[ -r "$1" ] || die "cannot read $1"
	[ -n "${UBLKCTL_VM_MODULES:-}" ] ||
		die "$1 needs UBLKCTL_VM_MODULES=DIR, its modules as in /lib/modules/RELEASE"
	[ -r "$UBLKCTL_VM_MODULES/modules.dep" ] || die "$UBLKCTL_VM_MODULES has no modules.dep"
	kernel_image=$(realpath "$1")
	kernel_modules=$(realpath "$UBLKCTL_VM_MODULES")
	kernel_release=${kernel_modules##*/}
	kernel_home=
	kernel_base=$tmp/base
	mkdir -p "$kernel_base/lib/modules"
	ln -s "$kernel_modules" "$kernel_base/lib/modules/$kernel_release"
	ln -s . "$kernel_base/usr"
}

kernel_find() { # SPEC UPDATE: sets kernel_*, fetching what the cache does not have
	local spec=$1 update=$2 found lock
	case $spec in
	*/*)
		kernel_by_path "$spec"
		return
		;;
	esac
	mkdir -p "$cache" || die "cannot make $cache"
	if [ "$update" = 1 ] || ! found=$(kernel_cached "$spec"); then
		exec {lock}>"$cache/lock"
		flock "$lock"
		# Somebody else may have fetched it while this process waited.
		if [ "$update" = 1 ] || ! found=$(kernel_cached "$spec"); then
			kernel_fetch "$spec"
		fi
		exec {lock}>&-
	fi
	kernel_release=$found
	kernel_home=$cache/kernels/$found
	kernel_modules=$(realpath "$kernel_home/lib/modules/$found")
	kernel_base=$kernel_home
}

# Sets kernel_image and kernel_initrd to what qemu starts. They are made once, unless the kernel came by
# path, and again by another version of this file.
kernel_prepare() {
	local key lock
	if [ -z "$kernel_home" ]; then
		kernel_initrd=$tmp/initrd.base
		kernel_make_initrd "$kernel_initrd"
		return
	fi
	key=$(cksum <"${BASH_SOURCE[0]}")
	kernel_initrd=$kernel_home/initrd-${key%% *}
	if [ ! -e "$kernel_initrd" ]; then
		exec {lock}>"$cache/lock"
		flock "$lock"
		kernel_make_initrd "$tmp/initrd.base"
		cp "$tmp/initrd.base" "$kernel_home/.new" || die "cannot write to $kernel_home"
		[ -e "$kernel_home/vmlinux" ] || kernel_decompress "$kernel_home"
		mv "$kernel_home/.new" "$kernel_initrd"
		find "$kernel_home" -maxdepth 1 -name 'initrd-*' -mtime +7 -delete
		exec {lock}>&-
	fi
	[ ! -e "$kernel_home/vmlinux" ] || kernel_image=$kernel_home/vmlinux
}
