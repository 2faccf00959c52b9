# SPDX-License-Identifier: GPL-2.0-or-later
#
# common.mk - what a part's Makefile may include first
#
#   ROOT := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))..)
#   include $(ROOT)/mk/common.mk
#
# Every part honours these, on the command line or from the environment:
#
#   BUILD=DIR      where output goes (build/ at the top); a build with other
#                  flags or another compiler takes another BUILD
#   CC=gcc|clang   compiler
#   CCACHE=        compile without ccache, which is used where it is installed
#   WERROR=1       warnings are errors
#   SANITIZE=address,undefined | thread
#   PREFIX= LIBDIR= DESTDIR=   where `make install` puts things (install.mk)
#
# Objects depend on their headers (-MMD) and on the command that made them
# ($(BUILD)/.../flags), so a change of CC or CFLAGS rebuilds.

DCM_ROOT := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))..)
BUILD ?= $(DCM_ROOT)/build
override BUILD := $(abspath $(BUILD))
ifeq ($(origin CC),default)
CC := gcc
endif
include $(DCM_ROOT)/mk/ccache.mk
PKG_CONFIG ?= pkg-config
WERROR ?= 1
SANITIZE ?=
OPT ?= -O2 -g

DCM_VERSION := $(shell cat $(DCM_ROOT)/VERSION)

DCM_CFLAGS := -std=gnu11 -Wall -Wextra -Wmissing-prototypes \
	-Wstrict-prototypes -Wvla -Wformat=2 -D_GNU_SOURCE \
	-DDCM_VERSION='"$(DCM_VERSION)"' -fno-omit-frame-pointer -pthread \
	-I$(DCM_ROOT)/guest-virtio-gc/include
ifeq ($(WERROR),1)
DCM_CFLAGS += -Werror
endif
DCM_LDFLAGS := -pthread
ifneq ($(SANITIZE),)
DCM_CFLAGS += -fsanitize=$(SANITIZE) -fno-sanitize-recover=all
DCM_LDFLAGS += -fsanitize=$(SANITIZE)
else
DCM_CFLAGS += -D_FORTIFY_SOURCE=2 -fstack-protector-strong
DCM_LDFLAGS += -Wl,-z,relro,-z,now
endif
DCM_CFLAGS += $(OPT) $(CFLAGS)
DCM_LDFLAGS += $(LDFLAGS)

# $(call dcm_objects,part,sources below ROOT) - objects of a part
dcm_objects = $(patsubst %.c,$(BUILD)/obj/$(1)/%.o,$(2))

# $(eval $(call dcm_compile,part,extra flags)) - the rule that makes them
define dcm_compile
$(BUILD)/obj/$(1)/flags: FORCE
	@mkdir -p $$(@D)
	@printf '%s\n' "$$$$DCM_FLAGS_LINE" | cmp -s - $$@ || \
		printf '%s\n' "$$$$DCM_FLAGS_LINE" > $$@
$(BUILD)/obj/$(1)/flags: export DCM_FLAGS_LINE = $$(CC) $$(DCM_CFLAGS) $(2)
$(BUILD)/obj/$(1)/%.o: $(DCM_ROOT)/%.c $(BUILD)/obj/$(1)/flags
	@mkdir -p $$(@D)
	@echo "  CC      $$(patsubst $(DCM_ROOT)/%,%,$$<)"
	@$$(CCACHE) $$(CC) $$(DCM_CFLAGS) $(2) -MMD -MP -MT $$@ -c -o $$@ $$<
-include $$(wildcard $(foreach deep,* */* */*/*,$(BUILD)/obj/$(1)/$(deep)/*.d))
endef

.PHONY: FORCE
FORCE:

include $(DCM_ROOT)/mk/install.mk
