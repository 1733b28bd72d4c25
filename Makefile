# SPDX-License-Identifier: MIT
#
# make            build build/ublkctl
# make demo       show it on a real driver: here, or in a throwaway VM
# make check      all tests ("make check T='unit cli'" for some groups)
# make bench      instructions per request in a guest, against goals
# make lint       compilers with -Werror, cppcheck, shellcheck, formatting
# make install    DESTDIR=, PREFIX=/usr/local
#
# Knobs: CC=, CFLAGS=, LDFLAGS=, S=asan,ubsan or S=tsan (own build directory),
#        V=1 (show commands), NO_INSTALL=1 (name missing packages, install nothing)

PREFIX ?= /usr/local
SBINDIR ?= $(PREFIX)/sbin
MANDIR ?= $(PREFIX)/share/man
COMPDIR ?= $(PREFIX)/share/bash-completion/completions
CFLAGS ?= -O2 -g
PKG_CONFIG ?= pkg-config
S ?=
T ?=

comma := ,
BUILD := build$(if $(S),-$(subst $(comma),-,$(S)))

WARN := -Wall -Wextra -Wshadow -Wmissing-prototypes -Wvla -Wformat=2 -Wundef
SAN-asan := -fsanitize=address
SAN-ubsan := -fsanitize=undefined -fno-sanitize-recover=all
SAN-tsan := -fsanitize=thread
SAN := $(foreach s,$(subst $(comma), ,$(S)),$(or $(SAN-$(s)),$(error S=$(s): not one of asan ubsan tsan)))

PKGS := liburing json-c smartcols
PKG_CFLAGS = $(shell $(PKG_CONFIG) --cflags $(PKGS))
PKG_LIBS = $(shell $(PKG_CONFIG) --libs $(PKGS))

ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -Icli $(WARN) $(CFLAGS) $(SAN) $(PKG_CFLAGS) -pthread \
	-DLIBURING_BUILD_VERSION='"$(shell $(PKG_CONFIG) --modversion liburing)"'
ALL_LDFLAGS = $(LDFLAGS) $(SAN) -pthread

SRCS := $(wildcard cli/*.c cli/*/*.c)
OBJS := $(SRCS:%.c=$(BUILD)/%.o)
UNIT_SRCS := $(wildcard tests/unit/test_*.c)
UNIT_BINS := $(UNIT_SRCS:%.c=$(BUILD)/%)
# The program with moments at which it kills itself (util/fault.h), for tests/dev/lifecycle.bats.
FAULT_SRCS := cli/serve_steps.c cli/teardown.c
FAULTS := $(BUILD)/ublkctl-faults
STRESS := $(BUILD)/tests/stress/stress
STRESS_OBJS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/stress/*.c))

Q := $(if $(V),,@)
say = $(if $(V),,@echo "  $(1)	$(2)")

.PHONY: all bench check check-full demo lint install uninstall clean deps-build deps-demo deps-test \
	deps-lint pkgs completions help
.DELETE_ON_ERROR:

all: $(BUILD)/ublkctl

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | sed -n '2,11p'

# A missing library is named with its package before the first compiler error.
pkgs:
	@for p in liburing:2.3:liburing-dev json-c:0.16:libjson-c-dev smartcols:2.38:libsmartcols-dev; do \
		set -- $$(echo $$p | tr : ' '); \
		$(PKG_CONFIG) --atleast-version=$$2 $$1 || \
		{ echo "ublkctl needs $$1 $$2 or later (Debian: $$3)" >&2; exit 1; }; \
	done

$(BUILD)/ublkctl: $(OBJS)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

$(BUILD)/%.o: %.c | pkgs
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# All but the dispatcher: a unit test takes what it calls, and can stand in for a whole file.
UNIT_LIB := $(BUILD)/libcli.a
$(UNIT_LIB): $(filter-out $(BUILD)/cli/main.o,$(OBJS))
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# A unit test also links the objects it names in a line "UNIT: tests/unit/a.o tests/unit/b.o".
unit_objs = $(addprefix $(BUILD)/,$(shell sed -n 's/.*UNIT: *//p' $(1)))
.SECONDEXPANSION:
$(UNIT_BINS): $(BUILD)/%: $(BUILD)/%.o $$(call unit_objs,%.c) $(UNIT_LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS) -lcmocka

# Data-integrity stress of a block device, run by tests/dev in the guest.
$(STRESS): $(STRESS_OBJS)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

$(BUILD)/faults/%.o: %.c | pkgs
	$(call say,CC,$< with faults)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -DFAULT_POINTS -MMD -MP -c -o $@ $<

$(FAULTS): $(filter-out $(FAULT_SRCS:%.c=$(BUILD)/%.o),$(OBJS)) $(FAULT_SRCS:%.c=$(BUILD)/faults/%.o)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

-include $(OBJS:.o=.d) $(wildcard $(BUILD)/faults/*/*.d) $(wildcard $(BUILD)/tests/*/*.d)

deps-build deps-demo deps-test deps-lint: deps-%:
	@tests/deps build $*

demo: deps-demo
	$(Q)$(MAKE) --no-print-directory all
	$(Q)BUILD=$(BUILD) tests/demo

# valgrind is not for what a sanitizer looks at
GROUPS = unit $(if $(S),,unit-valgrind) cli docs harness dev dev-6.12

check: deps-test
	$(Q)$(MAKE) --no-print-directory all $(UNIT_BINS) $(STRESS) $(FAULTS)
	$(Q)BUILD=$(BUILD) tests/run $(or $(T),$(GROUPS))

check-full: deps-test
	$(Q)$(MAKE) --no-print-directory all $(UNIT_BINS) $(STRESS) $(FAULTS)
	$(Q)UBLKCTL_FULL=1 BUILD=$(BUILD) tests/run $(or $(T),$(GROUPS))

bench: deps-test
	$(Q)$(MAKE) --no-print-directory all
	$(Q)BUILD=$(BUILD) tests/bench/run

SHELL_FILES = tests/run tests/bench/run tests/bench/guest tests/bench/table tests/bench/compare tests/deps tests/demo \
	tests/vm/run tests/vm/uapi tests/vm/init tests/vm/*.sh .ci/run completions/generate \
	tests/cli/trees/record $(wildcard tests/*.bats tests/*.bash tests/*/*.bats tests/*/*.bash)

# It does not know the cleanup attribute; the sanitizers look for leaks.
CPPCHECK_OFF = --suppress=memleak --suppress=resourceLeak

lint: deps-lint
	$(Q)$(MAKE) --no-print-directory BUILD=build-gcc CC=gcc CFLAGS='-O2 -Werror' all
	$(Q)$(MAKE) --no-print-directory BUILD=build-clang CC=clang CFLAGS='-O2 -Werror' all
	$(Q)cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr -Icli \
		--enable=warning,portability --suppress=missingIncludeSystem $(CPPCHECK_OFF) cli
	$(Q)shellcheck $(SHELL_FILES)
	$(Q)clang-format --dry-run -Werror $$(git ls-files 'cli/*.[ch]' 'cli/**/*.[ch]' 'tests/unit/*.[ch]' \
		'tests/stress/*.[ch]')

completions: all
	$(Q)completions/generate $(BUILD)/ublkctl > completions/ublkctl.new
	$(Q)mv completions/ublkctl.new completions/ublkctl

install: all
	install -D -m 755 $(BUILD)/ublkctl $(DESTDIR)$(SBINDIR)/ublkctl
	install -D -m 644 man/ublkctl.8 $(DESTDIR)$(MANDIR)/man8/ublkctl.8
	install -D -m 644 completions/ublkctl $(DESTDIR)$(COMPDIR)/ublkctl

uninstall:
	rm -f $(DESTDIR)$(SBINDIR)/ublkctl $(DESTDIR)$(MANDIR)/man8/ublkctl.8 \
		$(DESTDIR)$(COMPDIR)/ublkctl

clean:
	rm -rf build build-*
