# SPDX-License-Identifier: GPL-2.0-or-later
#
# ccache.mk - $(CCACHE), which goes before $(CC) when a file is compiled; DCM_ROOT is set
#
# Tests compile all by two compilers, and much with sanitizers: a fresh clone takes what another
# has compiled. Paths below the clone count from there, so that they are the same.
ifeq ($(origin CCACHE),undefined)
CCACHE := $(shell command -v ccache)
endif
DCM_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kvm-dcm
export CCACHE
export CCACHE_DIR := $(DCM_CACHE)/ccache
export CCACHE_BASEDIR := $(DCM_ROOT)
export CCACHE_NOHASHDIR := 1
