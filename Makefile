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

include mk/install.mk
SEED ?=
NPROC := $(shell nproc)

# Every part has a Makefile of its own. `make programs` builds what is
# installed, `make tests-build` what only tests and measurements run. BUILD, CC
# and WERROR given here hold there too, as do PREFIX, LIBDIR and DESTDIR.
PROGRAMS := kvm-dcm donor-daemon guest-virtio-gc/lib
PARTS := $(PROGRAMS) dcmctl configs
TESTS := $(patsubst %/Makefile,%,$(wildcard $(addsuffix /Makefile,\
	tests/unit tests/client tests/torture tests/fuzz tests/donor tests/pager \
	tests/kernel tests/vm tests/qemu tests/gc tests/faults \
	bench)))

PYTEST = scripts/py pytest --junitxml=$${DCM_RESULTS:-$(BUILD)/test/results/by-hand}/$@.xml

.PHONY: all programs tests-build help check kernel-check unit torture fuzz \
	fuzz-run test-gc test-donor test-client test-pager test-dcmctl test-guest \
	test-faults test-kernel test-kernel-debug test-ops test-page page-picture test-libvirt \
	test-packages packages test-qemu test-qemu-debug test-jvm vm-shell test test-all \
	test-build bench bench-kernel bench-gc bench-jvm bench-redundancy demo demo-jvm install \
	install-dkms install-libvirt clean deps-%

all: deps-build
	@+$(MAKE) programs

programs: $(PROGRAMS:%=build-%)
tests-build: $(TESTS:%=build-%)
$(PROGRAMS:%=build-%) $(TESTS:%=build-%): build-%:
	@+$(MAKE) -C $* $(if $(filter tests/unit,$*),build,all) O=$(BUILD)
# It uses libdcm and the donor: two makes must not build them at once.
build-tests/torture: $(PROGRAMS:%=build-%)
.PHONY: $(PROGRAMS:%=build-%) $(TESTS:%=build-%)
# Some tests link what is installed; two makes must not build it at once.
$(TESTS:%=build-%): | $(PROGRAMS:%=build-%)

deps-%:
	@scripts/deps.sh $*

help:
	@echo 'make            build everything into build/'
	@echo 'make demo       a stock guest on the memory of three donors, from nothing'
	@echo 'make demo-jvm   a Java heap in a guest on donors, which trace it, from nothing'
	@echo 'make test       tests of every part, 25 minutes; installs what they need; what CI runs'
	@echo 'make test-all   all tests, hours; FROM=STAGE goes on there'
	@echo 'make bench      the measurements of docs/, into build/bench/'
	@echo 'make bench-kernel  the kernel pager beside swap, counts from a VM'
	@echo 'make bench-gc   those of garbage collection on donors'
	@echo 'make bench-redundancy  what a donor'"'"'s death costs a program with copies'
	@echo 'make bench-jvm  those of a JVM with its heap on donors; needs libjvm (make test-jvm)'
	@echo 'make page-picture  docs/pictures/page.png, by the test of the operator'"'"'s page'
	@echo 'make install    PREFIX=$(PREFIX) DESTDIR='
	@echo 'make install-dkms  the kernel module, for DKMS; DESTDIR='
	@echo 'make install-libvirt  the hook for libvirt; DESTDIR='
	@echo 'make packages   Debian packages, for Debian 13, into build/packages/'
	@echo 'make clean      remove build/'
	@echo
	@echo 'stages of make test and make test-all; QUICK=1 leaves out what make test leaves out,'
	@echo 'K=NAME runs only tests of that name (pytest -k), in stages of Python:'
	@echo '  make check         style, static checks, both compilers'
	@echo '  make kernel-check  build kvm-dcm.ko for Debian 13 and the newest kernel'
	@echo '  make unit          unit tests under sanitizers'
	@echo '  make torture       SECONDS=60 SEED= random operations, every byte checked'
	@echo '  make fuzz          replay the corpora'
	@echo '  make fuzz-run      SECONDS=60 search for new inputs (in neither)'
	@echo '  make test-gc       garbage collection on donors, against a runtime of its own'
	@echo '  make test-donor    donors over real sockets'
	@echo '  make test-client   the host side of donors'
	@echo '  make test-pager    libdcm: real programs on donor memory'
	@echo '  make test-dcmctl   the command line'
	@echo '  make test-ops      donors found in etcd; metrics, alerts, dashboards, a real Prometheus'
	@echo '  make test-page     the operator'"'"'s page in a browser'
	@echo '  make test-guest    a stock guest on donor memory'
	@echo '  make test-faults   what can go wrong, done to hosts, donors and networks; 15 minutes'
	@echo '  make test-kernel   the kernel module, its daemon, RDMA and guests under KVM, in a VM'
	@echo '  make test-libvirt  domains of a stock libvirt on donor memory, in that VM'
	@echo '  make test-qemu     QEMU with our patches, virtio-gc, its driver and runtimes in a guest'
	@echo '  make test-jvm      OpenJDK with its heap on donors; builds its libjvm first, an hour'
	@echo '  make packages      build the Debian packages'
	@echo 'of make test-all only:'
	@echo '  make test-packages  the packages installed, used, upgraded, removed'
	@echo '  make test-kernel-debug  that of dcmfs under KASAN, lockdep and kmemleak; KUnit'
	@echo '  make test-qemu-debug  the driver of virtio-gc under KASAN, lockdep and kmemleak'
	@echo
	@echo 'make vm-shell   a shell in that VM'

# ---- checks and tests ----

# QUICK=1 leaves out what is marked slow, as `make test` does; docs/testing.md says what that is.
# K= chooses pytest's tests by name, as its -k does. Only the last -k counts.
QUICK ?=
K ?=
NAMED = $(if $(K),-k '$(K)')
AND_NAMED = $(if $(K), and ($(K)))
SECONDS ?= $(if $(QUICK),20,60)
CHOSEN = $(if $(QUICK),-m 'not slow') $(NAMED)

check: deps-lint deps-kernel
	@scripts/check

kernel-check: deps-kernel
	@scripts/kernel-check

unit: deps-test
	@+$(MAKE) -j$(NPROC) -C tests/unit check
	@+$(MAKE) --no-print-directory -C tests/unit wrong-lines

torture: deps-test
	@+$(MAKE) -C tests/torture run SECONDS=$(SECONDS) SEED=$(SEED)

fuzz: deps-test
	@+$(MAKE) -C tests/fuzz replay

fuzz-run: deps-test
	@+$(MAKE) -C tests/fuzz run SECONDS=$(SECONDS)

# The engine of GC workers, and the workers, as real processes; then with the
# pager, and donors that are near, far and hard to reach.
test-gc: deps-test deps-pager programs
	@scripts/check-gc-spec
	@+$(MAKE) -j$(NPROC) -C tests/gc check
	@+$(MAKE) -C tests/pager all
	@DCM_BUILD=$(BUILD) $(PYTEST) tests/pager $(CHOSEN) -k 'test_gc$(AND_NAMED)'

test-donor: deps-test programs
	@$(PYTEST) tests/donor $(CHOSEN)

# The host side of donors, with sanitizers, against real donors.
test-client: deps-test programs
	@mkdir -p $(BUILD)/test
	@+for san in address,undefined thread; do \
		log=$(BUILD)/test/client-$$san.out what=check; \
		[ -z "$(QUICK)" ] || [ $$san != thread ] || what=check-unit; \
		{ $(MAKE) -j$(NPROC) -C tests/client all O=$(BUILD) SAN=$$san && \
			$(MAKE) -C tests/client $$what O=$(BUILD) SAN=$$san; } >$$log 2>&1; \
		rc=$$?; cat $$log; scripts/count-cmocka $$log; \
		[ $$rc -eq 0 ] || exit $$rc; \
	done

test-pager: deps-test deps-pager programs
	@+$(MAKE) -C tests/pager all
	@DCM_BUILD=$(BUILD) $(PYTEST) tests/pager $(CHOSEN) -k 'not test_gc$(AND_NAMED)'

test-dcmctl: deps-test programs
	@$(PYTEST) tests/dcmctl tests/framework $(CHOSEN)

test-guest: deps-test deps-demo programs
	@$(PYTEST) tests/guest $(CHOSEN)

# What can go wrong, done to real daemons in networks of their own, and in that VM what this
# host's kernel can't do; into build/faults.json. ONLY='ID ID' chooses rows.
ONLY ?=
test-faults: deps-test deps-pager programs $(if $(QUICK),,deps-vm kernel-check)
	@$(if $(QUICK),,scripts/vm-image >/dev/null)
	@+$(MAKE) -C tests/pager all
	@+$(MAKE) -C tests/unit build
	@+$(MAKE) -C tests/faults all
	@BUILD=$(BUILD) tests/faults/run $(if $(QUICK),--quick) $(addprefix --only ,$(ONLY))

# In a VM whose kernel loads modules and has KVM; needs neither of this host.
test-kernel: deps-test deps-demo deps-vm programs
	@scripts/vm-image >/dev/null
	@scripts/guest-image >/dev/null
	@scripts/kernel-check 6.12 && scripts/kernel-check jitter
	@+$(MAKE) -C tests/pager all
	@+$(MAKE) -C tests/vm all
	@$(PYTEST) -v tests/vm $(CHOSEN) \
		$(patsubst %,--ignore=tests/vm/test_%.py,libvirt packages walk)

# Those of dcmfs, of dcm-hostd over RDMA, of copies, and of heaps whose donors go, under KASAN,
# lockdep and kmemleak, and what only such a kernel has: KUnit, allocations that fail. A stock
# guest's work would take too long there. In pieces: K='kunit or hostd',
# then K=dcmfs, then K=gc.
test-kernel-debug: DEBUGGED = test_kunit or test_dcmfs or (test_hostd and verbs) or \
	(test_copies and tcp) or (test_gc and (update or (unix and drain)))
test-kernel-debug: deps-test deps-demo deps-vm deps-debug-kernel programs
	@scripts/vm-image >/dev/null
	@+$(MAKE) -C tests/vm all
	@kernel=$$(scripts/debug-kernel) && \
		DCM_DEBUG_KERNEL=$$kernel $(PYTEST) -v --timeout 1800 tests/vm \
		-k '($(DEBUGGED))$(AND_NAMED)'

# Discovery in etcd, metrics, alerts and dashboards; no VM.
test-ops: deps-ops programs
	@$(PYTEST) tests/ops $(CHOSEN)

# The operator's page in a browser.
test-page: export DCM_PY_EXTRA = page
test-page: deps-test deps-page programs
	@$(PYTEST) -s tests/page $(CHOSEN)

# The README's picture of that page, from its test.
page-picture: test-page
	@[ $$(stat -c %s $(BUILD)/test/page/wide.png) -le 204800 ] || \
		{ echo 'page-picture: wide.png is over 200 KB'; exit 1; }
	install -D -m 644 $(BUILD)/test/page/wide.png docs/pictures/page.png

# Debian packages into build/packages, built in a Debian 13; installed in another, used,
# upgraded and removed.
packages: deps-packages
	@scripts/packages

test-packages: deps-test deps-demo deps-packages programs
	@scripts/vm-image >/dev/null
	@scripts/package-image >/dev/null
	@+$(MAKE) -C tests/vm all
	@$(PYTEST) -s tests/vm/test_packages.py tests/vm/test_walk.py $(NAMED)

# VMs of a stock libvirt, in that VM.
test-libvirt: deps-test deps-demo deps-vm programs
	@scripts/vm-image >/dev/null
	@scripts/guest-image >/dev/null
	@scripts/libvirt-image >/dev/null
	@scripts/kernel-check 6.12
	@+$(MAKE) -C tests/vm all
	@$(PYTEST) tests/vm/test_libvirt.py $(CHOSEN)

# QEMU with our patches (built first, 5 to 10 minutes), virtio_gc.ko in its guest, and runtimes
# there.
test-qemu: deps-test deps-demo deps-vm deps-qemu programs
	@scripts/qemu-build >/dev/null
	@scripts/vm-image >/dev/null
	@scripts/guest-image >/dev/null
	@$(PYTEST) tests/qemu $(CHOSEN)

# The driver's tests under KASAN, lockdep and kmemleak.
test-qemu-debug: deps-test deps-qemu deps-debug-kernel programs
	@scripts/qemu-build >/dev/null
	@scripts/vm-image >/dev/null
	@kernel=$$(scripts/debug-kernel) && \
		DCM_DEBUG_KERNEL=$$kernel $(PYTEST) tests/qemu/test_driver.py $(NAMED)

# OpenJDK with its heap on donors, in guests too. Its libjvm is built first, 30 to 60 minutes, from
# the archives in $DCM_JDK_SOURCE or from the mirror's; with QUICK=1 one that is in the cache is
# taken, or all is skipped.
test-jvm: export DCM_TEST_JVM = $(if $(QUICK),,1)
test-jvm: deps-test $(if $(QUICK),,deps-jdk deps-vm deps-qemu deps-packages) programs
	@$(if $(QUICK),,for made in jdk-build vm-image qemu-build jdk-image; do \
		scripts/$$made >/dev/null || exit 1; done)
	@$(PYTEST) tests/jvm $(CHOSEN)

vm-shell: deps-vm
	@scripts/py python -m tests.vm.bed --shell

# Each stage is one of the targets above; NAME@SECONDS is its limit. JOBS of them run at a time, but
# for NAME!, which judges times and runs alone. The first one installs and builds what several of
# them use; the others come the longest first. FROM=NAME begins at that stage. Not $(MAKE): `make
# -n test` would run it.
STAGE_MAKE = $(MAKE)
JOBS ?= 2
FROM ?=
RUN_STAGES = scripts/run-stages --log-dir $(BUILD)/test --jobs $(JOBS) $(FROM:%=--from %)
stage = '$(subst =,=$(STAGE_MAKE) ,$(1))$(2:%= %)'
stages = $(foreach s,$(1),$(call stage,$(s),$(2)))

# At least one real test of every part. Stages that wait for half of
# their time (~) share a place.
test: deps-test
	@$(RUN_STAGES) $(call stages,build@1800=test-build \
		kernel@3600=test-kernel qemu@3600=test-qemu guest@1500=test-guest \
		libvirt@1800=test-libvirt page~@600=test-page \
		donor~@900=test-donor dcmctl~@900=test-dcmctl client~@900=test-client \
		jvm~@900=test-jvm ops~@600=test-ops torture~@300=torture \
		unit~@900=unit pager@900=test-pager gc@900=test-gc check@900=check \
		packages@900=packages kernel-check@900=kernel-check fuzz@300=fuzz \
		faults!@600=test-faults,QUICK=1)

test-all: deps-test
	@$(RUN_STAGES) $(call stages,build@1800=test-build \
		kernel@14400=test-kernel kernel-debug@14400=test-kernel-debug \
		packages@7200=test-packages jvm@14400=test-jvm qemu@7200=test-qemu \
		libvirt@3600=test-libvirt qemu-debug@7200=test-qemu-debug \
		guest@3600=test-guest page~@900=test-page \
		donor~@1800=test-donor dcmctl~@1800=test-dcmctl client~@1800=test-client \
		ops~@900=test-ops torture~@600=torture \
		unit~@900=unit check@900=check pager@1800=test-pager gc@1800=test-gc \
		kernel-check@900=kernel-check fuzz@300=fuzz faults!@3600=test-faults)

test-build:
	@scripts/deps.sh build test lint kernel pager demo vm ops page packages qemu
	@+$(MAKE) -j$(NPROC) all
	@+$(MAKE) -C tests/pager all
	@+$(MAKE) -C tests/vm all

# Three hours, most of them for the programs; the first time page traces are recorded, in 30 minutes.
bench: deps-bench deps-demo programs
	@+$(MAKE) -C bench all
	@bench/run

# The kernel pager beside swap, in VMs: counts and ratios, no times.
bench-kernel: deps-test deps-demo deps-vm kernel-check
	@scripts/vm-image >/dev/null
	@+$(MAKE) -C tests/kernel all
	@+$(MAKE) -C bench/kernel all
	@scripts/py python bench/kernel/run

bench-gc: deps-bench programs
	@+$(MAKE) -C bench all
	@bench/run-gc

# A JVM with its heap on donors; without our libjvm in the cache all rows say so.
bench-jvm: deps-bench programs
	@bench/run-jvm

# Donors killed under a program with copies, and what copies cost; 35 minutes.
bench-redundancy: deps-bench deps-test deps-vm programs kernel-check
	@scripts/vm-image >/dev/null
	@+$(MAKE) -C bench all
	@+$(MAKE) -C tests/faults all
	@bench/run-redundancy

demo: deps-demo programs
	@demo/run

# The same of a JVM: its package is made first, and for it our libjvm (30 to 60 minutes, once).
demo-jvm: deps-test deps-demo deps-vm deps-qemu deps-packages deps-jdk programs
	@scripts/jdk-build --cached >/dev/null 2>&1 || scripts/jdk-build >/dev/null
	@scripts/qemu-build >/dev/null
	@scripts/vm-image >/dev/null
	@scripts/kernel-check 6.12
	@scripts/py python demo/jvm

# ---- install ----

# Each part installs itself; mk/install.mk says where.
install: all
	@+for part in $(PARTS); do $(MAKE) -C $$part install || exit 1; done
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true

# For a host whose VMs are libvirt's, with `make install`.
install-libvirt:
	@+$(MAKE) -C libvirt-hooks install

# The kernel pager's sources, for DKMS to build it from.
install-dkms:
	@+$(MAKE) -C kvm-dcm/linux install

clean:
	rm -rf $(BUILD)
