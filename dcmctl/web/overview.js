// SPDX-License-Identifier: GPL-2.0-or-later
// Health, sums, which VM uses which donor, and events.

import { $, el, keyed, level, say } from "./dom.js";
import * as format from "./format.js";

const WORDS = { good: "all is well", warn: "look here", bad: "in trouble" };

export function showHealth(health) {
	level($("pill"), "pill", health.level);
	say($("pill"), WORDS[health.level] ?? health.level);
	document.title = health.level === "good" ? "kvm-dcm" : `(${health.lines.length}) kvm-dcm`;
	keyed($("health"), health.lines, (line) => `${line.level} ${line.text}`,
		(line) => el("p", { class: `line ${line.level}` }),
		(node, line) => say(node, `${line.level === "bad" ? "✖" : "⚠"} ${line.text}`));
}

const add = (items, name) => {
	const known = items.map((item) => item[name]).filter((value) => value !== null && value !== undefined);
	return known.length ? known.reduce((sum, value) => sum + value, 0) : null;
};

export function showTiles(look) {
	const { donors, vms } = look.estate;
	const up = donors.filter((donor) => donor.state === "up").length;
	const rates = Object.values(look.rates);
	const tiles = [
		["donors", `${up} of ${donors.length}`, "donors up"],
		["lent", format.size(add(donors, "lent_bytes")), `lent of ${format.size(add(donors, "capacity_bytes"))}`],
		["free", format.size(add(donors, "free_bytes")), "free on donors"],
		["direct", format.size(add(vms, "direct_bytes")), `direct of ${format.size(add(vms, "budget_bytes"))} budget`],
		["indirect", format.size(add(vms, "indirect_bytes")), `on donors, of ${vms.length} VM${vms.length === 1 ? "" : "s"}`],
		["faults", format.count(add(rates, "faults_per_s")), "faults a second"],
	];
	keyed($("tiles"), tiles, ([key]) => key,
		([key]) => el("div", { class: "tile", id: `tile-${key}` }, el("b"), el("span")),
		(tile, [, value, text]) => {
			say(tile.firstElementChild, value);
			say(tile.lastElementChild, text);
		});
}

export function showUses({ donors, vms }) {
	const table = $("uses");
	const empty = !donors.length || !vms.length;
	table.hidden = empty;
	table.nextElementSibling.hidden = !empty;
	const rows = [
		["", ...donors.map((donor) => donor.name)],
		...vms.map((vm) => [vm.name, ...donors.map((donor) => {
			const use = vm.uses.find((one) => one.donor === donor.name);
			return use?.bytes ? format.size(use.bytes) : "-";
		})]),
	];
	keyed(table, rows.map((cells, at) => ({ at, cells })), (row) => String(row.at),
		() => el("tr"),
		(tr, { at, cells }) =>
			keyed(tr, cells.map((text, column) => ({ text, column })), (cell) => String(cell.column),
				({ column }) => el(at && column ? "td" : "th", { class: column ? "n" : "" }),
				(node, { text }) => {
					say(node, text);
					level(node, node.classList.contains("n") ? "n" : "", text === "-" ? "zero" : "");
				}));
}

export function showEvents(events) {
	$("events").nextElementSibling.hidden = events.length > 0;
	keyed($("events"), events, (event) => String(event.number),
		(event) => el("li", { "data-kind": event.kind },
			el("time", { datetime: new Date(event.time * 1000).toISOString() }, format.clock(event.time)),
			el("span", { class: event.level }, event.text)),
		() => {});
}
