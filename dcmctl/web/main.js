// SPDX-License-Identifier: GPL-2.0-or-later
// The page: requests the newest reading, shows it, waits for the next one.

import { Refused, get, hasToken, setToken } from "./api.js";
import { Charts } from "./charts.js";
import { ask } from "./dialog.js";
import { $, level, say } from "./dom.js";
import * as format from "./format.js";
import { showDonors } from "./donors.js";
import { showEvents, showHealth, showTiles, showUses } from "./overview.js";
import { showMix, showVms, showWaits } from "./vms.js";

const AGAIN_MS = 1000;
const LATE_MS = 30000; // the server answers within 20 s, with or without a new reading

const page = {
	look: null,
	events: [],
	lastEvent: 0,
	changes: false,
	chosen: null, // the VM whose charts are shown
	heard: 0,
};
let charts;

async function choose(key) {
	page.chosen = key;
	if (page.look) show();
	const { names, points } = await get("/api/history", { vm: key });
	if (page.chosen !== key) return;
	charts ??= new Charts();
	charts.show(names, points);
}

function pick(keys) {
	if (page.chosen !== null && keys.includes(page.chosen)) return;
	page.chosen = null;
	if (keys.length) choose(keys[0]).catch(() => (page.chosen = null));
}

function addPoint(look) {
	const at = look.keys.indexOf(page.chosen);
	if (at < 0 || !charts) return;
	const vm = look.estate.vms[at];
	const rates = look.rates[page.chosen];
	const latency = vm.latency?.fault;
	const values = {
		time: look.estate.time,
		direct_bytes: vm.direct_bytes,
		budget_bytes: vm.budget_bytes,
		indirect_bytes: vm.indirect_bytes,
		fault_p50_ns: latency?.count ? latency.p50 : null,
		fault_p99_ns: latency?.count ? latency.p99 : null,
		...rates,
	};
	charts.add(charts.names.map((name) => values[name] ?? null));
}

function show() {
	const { look } = page;
	const { estate } = look;
	showHealth(look.health);
	showTiles(look);
	showDonors(estate.donors, page.changes, (donor) => ask.drain(donor));
	showVms(look, page.chosen, page.changes, {
		choose: (key) => choose(key).catch(() => {}),
		budget: (key, vm) => ask.budget(key, vm),
	});
	showUses(estate);
	showEvents(page.events);
	const at = look.keys.indexOf(page.chosen);
	$("one").hidden = at < 0;
	if (at >= 0) {
		say($("one-name"), estate.vms[at].name);
		showMix(look.rates[page.chosen].block_mix, estate.vms[at]);
		showWaits(look.rates[page.chosen]);
	}
}

function take(answer) {
	page.heard = Date.now();
	page.changes = answer.changes;
	say($("version"), answer.version);
	$("gate").hidden = true;
	$("page").hidden = false;
	for (const event of answer.events) page.lastEvent = Math.max(page.lastEvent, event.number);
	page.events = [...answer.events.reverse(), ...page.events].slice(0, 200);
	const { look } = answer;
	if (!look || look.number === page.look?.number) return;
	page.look = look;
	pick(look.keys);
	show();
	addPoint(look);
	document.documentElement.dataset.look = look.number;
}

function showLive(error) {
	const live = $("live");
	const late = Date.now() - page.heard > LATE_MS;
	level(live, "live", error || late ? "late" : "");
	if (error) say(live, `no answer: ${error}`);
	else if (page.look) say(live, `live, ${format.clock(page.look.estate.time)}`);
	if (error) {
		level($("pill"), "pill", "bad");
		say($("pill"), "not live");
	}
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// A restarted server counts readings from 1 again.
async function follow() {
	for (;;) {
		let error = "";
		try {
			const signal = AbortSignal.timeout(LATE_MS);
			const answer = await get("/api/state",
				{ after: page.look?.number ?? 0, event: page.lastEvent }, signal);
			if (answer.look && page.look && answer.look.number < page.look.number) {
				page.lastEvent = 0;
				page.events = [];
				page.look = null;
				continue;
			}
			take(answer);
		} catch (problem) {
			if (problem instanceof Refused && problem.status === 401) {
				await gate(hasToken() ? problem.message : "");
				continue;
			}
			error = problem instanceof Refused ? problem.message : "the server does not answer";
		}
		showLive(error);
		if (error) await sleep(AGAIN_MS);
	}
}

// Wait until the user gives a token.
function gate(why) {
	$("page").hidden = true;
	$("gate").hidden = false;
	$("gate-error").hidden = !why;
	say($("gate-error"), why);
	say($("pill"), "token wanted");
	$("gate-token").focus();
	return new Promise((done) => {
		$("gate-form").onsubmit = (event) => {
			event.preventDefault();
			setToken($("gate-token").value);
			$("gate-token").value = "";
			done();
		};
	});
}

follow();
