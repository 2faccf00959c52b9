# SPDX-License-Identifier: GPL-2.0-or-later
#
# sources.mk - the sources of each folder, below the top directory. A folder is one layer;
# scripts/check-layers has the order.
sources = $(patsubst $(DCM_ROOT)/%,%,$(wildcard $(DCM_ROOT)/kvm-dcm/$(1)/*.c))

CORE_SRCS := $(call sources,core) kvm-dcm/lib/context_user.c
# what only a daemon has
DAEMON_SRCS := kvm-dcm/lib/args.c kvm-dcm/lib/notify.c
# sessions with donors, and all below them
CLIENT_SRCS := $(filter-out %/context_user.c $(DAEMON_SRCS),$(call sources,lib)) \
	$(call sources,proto) \
	$(filter-out %/hostile.c,$(call sources,transport)) $(call sources,client) \
	kvm-dcm/core/hist.c
# the host side of virtio-gc, wherever pages are
GC_SRCS := $(call sources,gc)
UFFD_SRCS := $(call sources,uffd)
# only for tests
CLIENT_TEST_SRCS := kvm-dcm/transport/hostile.c
CLIENT_PKGS := gnutls librdmacm libibverbs
UFFD_PKGS := $(CLIENT_PKGS) jansson libxxhash
