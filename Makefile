# SPDX-License-Identifier: GPL-2.0-or-later
#
# kvm-dcm: the dispatcher. What is built, and how, is in each part's own
# Makefile; this one knows their names and the order. Nothing is written
# outside build/ (and the cache, ~/.cache/kvm-dcm, for what is slow to make).

MAKEFLAGS += --no-print-directory --no-builtin-rules
.DEFAULT_GOAL := all

BUILD ?= $(CURDIR)/build
override BUILD := $(abspath $(BUILD))
export BUILD

PREFIX ?= /usr/local
DESTDIR ?=
SECONDS ?= 60
SEED ?=

# Everything that is compiled and installed.
PARTS := $(wildcard kvm-dcm/user/Makefile donor-daemon/Makefile)
# Test programs: `make -C tests/X` builds them, `... run` runs them and says
# "N passed, N failed, N skipped".
UNIT := $(wildcard tests/unit/Makefile tests/transport/Makefile)
FUZZ := $(wildcard tests/fuzz/Makefile)
TORTURE := $(wildcard tests/torture/Makefile)

PY := scripts/py
PYTEST := $(PY) pytest

.PHONY: help
help:
	@echo 'make            build everything into build/'
	@echo 'make demo       a stock guest on the memory of two donors, from nothing'
	@echo 'make test       all tests; installs what they need; what CI runs'
	@echo 'make bench      the measurements of docs/, into build/bench/'
	@echo 'make install    PREFIX=$(PREFIX) DESTDIR='
	@echo 'make clean      remove build/'
	@echo
	@echo 'single steps of make test:'
	@echo '  make check          style, static checks, both compilers'
	@echo '  make kernel-check   compile the core against Debian 13'\''s kernel headers'
	@echo '  make unit           unit tests under sanitizers'
	@echo '  make torture        SECONDS=60 SEED= random operations, every byte checked'
	@echo '  make fuzz           replay the corpora;  make fuzz-run SECONDS=60 searches'
	@echo '  make test-donor     the donor over real sockets'
	@echo '  make test-pager     libdcm: real programs on donor memory'
	@echo '  make test-dcmctl    the command line'
	@echo '  make test-guest     a stock guest on donor memory'
