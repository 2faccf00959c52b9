# SPDX-License-Identifier: GPL-2.0-or-later
#
# install.mk - where a part's `make install` puts its files
#
#   make -C PART install DESTDIR= PREFIX=/usr/local LIBDIR=
#
# Configurations go to the documentation: what is in /etc is the operator's.

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=
DCM_DEST := $(DESTDIR)$(PREFIX)
DCM_LIBDEST := $(DESTDIR)$(LIBDIR)
DCM_DOCDEST := $(DCM_DEST)/share/doc/kvm-dcm

# $(call dcm_install_unit,name,program's folder and name below /usr) - a service,
# whose program is where PREFIX says
define dcm_install_unit
sed 's,/usr/$(2),$(PREFIX)/$(2),' $(DCM_CONFIGS)/systemd/$(1).service | \
	install -D -m 644 /dev/stdin $(DCM_DEST)/lib/systemd/system/$(1).service
endef
DCM_CONFIGS := $(abspath $(dir $(lastword $(MAKEFILE_LIST))))/../configs
