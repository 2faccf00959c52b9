# SPDX-License-Identifier: GPL-2.0-or-later
#
# sources.mk - the runtime of tests, below the top directory; the host's tests and the guest's use
# it too.
MUTATOR_SRCS := $(addprefix tests/gc/,mutator.c mutator_le.c mutator_types.c)
