# SPDX-License-Identifier: GPL-2.0-or-later
"""dcmctl: run programs and stock guests on donor memory, and look at them.

    cli, running     the command line; commands on running VMs, printed by show and top
    web/             HTTP: the dashboard's page, the exporter for Prometheus
    cluster/         donors: those this host uses, those that etcd names, all that is known of them
    libvirt/         domains of libvirt: the hook, dcm-qemu, `dcmctl vm`
    pager/           this host's pagers: their configuration, sockets and files; `dcmctl run`
    lib/             text and values: addresses, keys, sizes, errors

Each imports only from those below it; scripts/check-layers has the list.

Standard library only, Python 3.11 or later. Nothing that comes from a socket, a file or the network
is trusted: sizes are bounded, types are checked, and no text of theirs reaches a terminal with its
control characters.
"""
