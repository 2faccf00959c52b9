// SPDX-License-Identifier: GPL-2.0-or-later
// The table of VMs; the block sizes of one, and what it waits for.

import { $, el, keyed, level, say, width } from "./dom.js";
import * as format from "./format.js";

const SIZES = ["4K", "8K", "16K", "32K", "64K"];
const COLORS = 8;
// As dcmctl why names them.
const CAUSES = [
	["donor", "donors' answers"], ["queue", "queues of this host"],
	["here", "this host's own work"], ["frames", "no free frame"],
	["out", "write-backs behind"], ["retry", "donors that fail"],
];

function make(key, on) {
	const row = el("tr", {},
		el("td", {}, el("button", { type: "button", class: "name", onclick: () => on.choose(key) }), el("span", { class: "sub kind" }), el("span", { class: "sub bad why" })),
		el("td", { "data-label": "State" }, el("span", { class: "pill" })),
		el("td", { "data-label": "Direct of budget" }, el("div", { class: "bar" }, el("i")), el("span", { class: "sub direct" })),
		el("td", { "data-label": "On donors" }, el("div", { class: "stack" }), el("span", { class: "sub indirect" })),
		...["Faults/s", "P50", "P99"].map((label) =>
			el("td", { class: "n", "data-label": label }, el("span", { class: "v" }))),
		el("td", {}, el("button", { type: "button", onclick: () => on.budget(key, row.vm) }, "Budget…")));
	return row;
}

function stateOf(vm) {
	if (vm.error) return ["silent", "warn"];
	if (vm.lost_bytes) return ["lost memory", "bad"];
	return vm.running ? ["running", "good"] : ["not used", ""];
}

function update(row, { vm, rate, colors }, chosen, changes) {
	row.vm = vm;
	row.dataset.vm = vm.name;
	level(row, "", chosen ? "chosen" : "");
	const [name, state, direct, indirect, faults, p50, p99, act] = row.children;
	say(name.querySelector(".name"), vm.name);
	name.querySelector(".name").setAttribute("aria-pressed", chosen);
	const pid = vm.pid === null ? "" : `, pid ${vm.pid}`;
	say(name.querySelector(".kind"), `${vm.pager} pager${pid}`);
	say(name.querySelector(".why"), vm.error);
	const [text, how] = stateOf(vm);
	level(state.querySelector(".pill"), "pill", how);
	say(state.querySelector(".pill"), text);
	const known = vm.budget_bytes !== null && vm.direct_bytes !== null;
	direct.querySelector(".bar").hidden = !known;
	width(direct.querySelector("i"), known && vm.budget_bytes ? vm.direct_bytes / vm.budget_bytes : 0);
	say(direct.querySelector(".direct"),
		`${format.size(vm.direct_bytes)} of ${format.size(vm.budget_bytes)}`);
	const uses = vm.uses.filter((use) => use.bytes > 0);
	const lent = uses.reduce((sum, use) => sum + use.bytes, 0);
	keyed(indirect.querySelector(".stack"), uses, (use) => use.donor, () => el("i"), (part, use) => {
		part.style.background = `var(--s${(colors.get(use.donor) ?? 0) % COLORS})`;
		width(part, lent ? use.bytes / lent : 0);
		part.title = `${use.donor}: ${format.size(use.bytes)}`;
	});
	const by = uses.map((use) => `${use.donor} ${format.size(use.bytes)}`).join(", ");
	const content = vm.indirect_bytes === null ? "" : format.size(vm.indirect_bytes);
	const sealed = vm.seal ? "sealed" : "";
	const behind = vm.lag_bytes ? `${format.size(vm.lag_bytes)} not in files yet` : "";
	say(indirect.querySelector(".indirect"),
		[content, by && `lent by ${by}`, behind, sealed].filter(Boolean).join(", ") || "-");
	say(faults.querySelector(".v"), format.count(rate?.faults_per_s));
	const latency = vm.latency?.fault;
	say(p50.querySelector(".v"), format.ns(latency?.p50));
	say(p99.querySelector(".v"), format.ns(latency?.p99));
	act.hidden = !changes || vm.budget_bytes === null;
}

export function showVms(look, chosen, changes, on) {
	const { donors, vms } = look.estate;
	const colors = new Map(donors.map((donor, at) => [donor.name, at]));
	const items = vms.map((vm, at) => ({
		vm, colors, key: look.keys[at], rate: look.rates[look.keys[at]],
	}));
	$("vms").hidden = !vms.length;
	$("vms").nextElementSibling.hidden = vms.length > 0;
	keyed($("vms").tBodies[0], items, (item) => item.key, (item) => make(item.key, on),
		(row, item) => update(row, item, item.key === chosen, changes));
}

// A bar of shares, each with an entry in the legend.
function showShares(bar, legend, items, color) {
	keyed(bar, items.filter((item) => item.share > 0), (item) => item.name, () => el("i"),
		(part, item) => {
			part.style.background = color(item);
			width(part, item.share);
		});
	keyed(legend, items, (item) => item.name,
		(item) => {
			const box = el("i");
			box.style.background = color(item);
			return el("li", {}, box, `${item.name} `, el("span"));
		},
		(entry, item) => say(entry.lastElementChild, item.known ? format.percent(item.share) : "-"));
	bar.setAttribute("aria-label",
		items.map((item) => `${item.name} ${format.percent(item.share)}`).join(", "));
}

// Pages fetched since the last reading; if there are none, since the VM's start.
export function showMix(recent, vm) {
	const sum = (mix) => SIZES.reduce((total, name) => total + (mix?.[name] ?? 0), 0);
	const mix = sum(recent) ? recent : vm.status?.block_mix;
	const total = sum(mix);
	const items = SIZES.map((name, at) =>
		({ name, at, known: total > 0, share: total ? mix[name] / total : 0 }));
	showShares($("mix"), $("mix-legend"), items, (item) => `var(--m${item.at})`);
}

// What accesses waited for since the last reading, and what would help.
export function showWaits(rate) {
	const ns = rate.waits_ns_per_s ?? {};
	const total = Object.values(ns).reduce((sum, value) => sum + value, 0);
	const items = CAUSES.map(([cause, name], at) =>
		({ name, at, known: total > 0, share: total ? ns[cause] / total : 0 }));
	showShares($("waits"), $("waits-legend"), items, (item) => `var(--s${item.at})`);
	say($("waits-why"), rate.why);
}
