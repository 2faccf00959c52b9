# SPDX-License-Identifier: GPL-2.0-or-later
"""dcmctl: run programs and stock guests on donor memory, and look at them.

    cli, running     the command line; commands on running VMs, printed by show and top
    web/             HTTP: the dashboard's page, the exporter for Prometheus
    cluster/         the donors of this host's configurations and those in etcd; their state
    libvirt/         domains of libvirt: the hook, dcm-qemu, `dcmctl vm`
    pager/           this host's pagers: their configuration, sockets and files; `dcmctl run`
    lib/             text and values: addresses, keys, sizes, errors

A module imports only from its own line and from lines below it; scripts/check-layers has the list.

Standard library only, Python 3.11 or later. Nothing that comes from a socket, a file or the network
is trusted: sizes are bounded, types are checked, and control characters are removed before text is
written to a terminal.
"""
