# SPDX-License-Identifier: GPL-2.0-or-later
# client.mk - the sources of the host side of donors and of the user pager,
# below the top directory
CLIENT_SRCS := \
	kvm-dcm/core/activity.c \
	kvm-dcm/core/place.c \
	kvm-dcm/core/wire.c \
	kvm-dcm/transport/shm.c \
	kvm-dcm/transport/tcp.c \
	kvm-dcm/transport/verbs.c \
	kvm-dcm/user/config.c \
	kvm-dcm/user/conn.c \
	kvm-dcm/user/ctl.c \
	kvm-dcm/user/ctl_address.c \
	kvm-dcm/user/ctl_data.c \
	kvm-dcm/user/ctl_donor.c \
	kvm-dcm/user/ctl_lane.c \
	kvm-dcm/user/ctl_member.c \
	kvm-dcm/user/ctl_place.c \
	kvm-dcm/user/ctl_slab.c \
	kvm-dcm/user/ctl_status.c \
	kvm-dcm/user/ctl_verbs.c \
	kvm-dcm/user/inside.c \
	kvm-dcm/user/keys.c \
	kvm-dcm/user/log.c \
	kvm-dcm/user/loss.c \
	kvm-dcm/user/tls.c
# what virtio-gc needs of a host, wherever its pages are
GC_SRCS := $(patsubst %,kvm-dcm/user/%.c,\
	gc_api gc_command gc_host gc_link gc_say gc_space gc_team gc_team_move \
	gc_team_space gc_team_trace) \
	donor-daemon/gc/request.c
PAGER_SRCS := $(GC_SRCS) $(patsubst %,kvm-dcm/user/%.c,\
	api control frames gc_pages gc_remote guest lane lost pager pins place polite sample status \
	uffd)
# only for tests
CLIENT_TEST_SRCS := kvm-dcm/transport/hostile.c
CLIENT_PKGS := gnutls inih librdmacm libibverbs
