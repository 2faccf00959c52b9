// SPDX-License-Identifier: GPL-2.0-or-later
// The table of donors.

import { $, el, keyed, level, say, width } from "./dom.js";
import * as format from "./format.js";

const LEVELS = { up: "good", connecting: "warn", silent: "warn", draining: "warn", lost: "bad" };
const NEAR_FULL = 0.85;
const FULL = 0.95;

function make(changes, drain) {
	const row = el("tr", {},
		el("td", {}, el("b", { class: "name" }), el("span", { class: "sub address" }), el("span", { class: "sub bad why" })),
		el("td", { "data-label": "State" }, el("span", { class: "pill" })),
		el("td", { "data-label": "Lent of capacity" }, el("div", { class: "bar" }, el("i")), el("span", { class: "sub lent" })),
		...["Free", "Head room", "Sessions", "To this host"].map((label) =>
			el("td", { class: "n", "data-label": label }, el("span", { class: "v" }))),
		el("td", {}, el("button", { type: "button", onclick: () => drain(row.donor) })));
	return row;
}

function update(row, donor, changes) {
	row.donor = donor;
	const [name, state, lent, free, room, sessions, here, act] = row.children;
	row.dataset.donor = donor.name;
	say(name.querySelector(".name"), donor.name);
	say(name.querySelector(".address"), donor.medium === "file" ? `${donor.address}, files` : donor.address);
	say(name.querySelector(".why"), donor.error);
	level(state.querySelector(".pill"), "pill", LEVELS[donor.state] ?? "");
	say(state.querySelector(".pill"), donor.state);
	const known = donor.capacity_bytes !== null;
	const share = known && donor.capacity_bytes ? donor.lent_bytes / donor.capacity_bytes : 0;
	lent.querySelector(".bar").hidden = !known;
	level(lent.querySelector(".bar"), "bar", share >= FULL ? "bad" : share >= NEAR_FULL ? "warn" : "");
	width(lent.querySelector("i"), share);
	say(lent.querySelector(".lent"),
		known ? `${format.size(donor.lent_bytes)} of ${format.size(donor.capacity_bytes)}` : "-");
	say(free.querySelector(".v"), format.size(donor.free_bytes));
	say(room.querySelector(".v"), format.size(donor.head_room_bytes));
	say(sessions.querySelector(".v"), donor.sessions === null ? "-" : String(donor.sessions));
	say(here.querySelector(".v"), format.size(donor.uses.reduce((sum, use) => sum + use.bytes, 0)));
	act.hidden = !changes || !["up", "unused", "draining"].includes(donor.state);
	say(act.firstElementChild, donor.state === "draining" ? "Use again…" : "Drain…");
}

export function showDonors(donors, changes, drain) {
	const body = $("donors").tBodies[0];
	$("donors").hidden = !donors.length;
	$("donors").nextElementSibling.hidden = donors.length > 0;
	keyed(body, donors, (d) => `${d.name} ${d.address}`, () => make(changes, drain),
		(row, donor) => update(row, donor, changes));
}
