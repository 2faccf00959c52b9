// SPDX-License-Identifier: GPL-2.0-or-later
// The two changes, budget and drain: each dialog explains it, and asks for the token.

import { Refused, hasToken, post, setToken } from "./api.js";
import { $, say } from "./dom.js";
import * as format from "./format.js";

function refuse(text) {
	$("dialog-error").hidden = !text;
	say($("dialog-error"), text);
}

function open({ title, text, yes, value, act }) {
	say($("dialog-title"), title);
	say($("dialog-text"), text);
	say($("dialog-yes"), yes);
	refuse("");
	$("dialog-value-label").hidden = value === null;
	$("dialog-value").value = value ?? "";
	$("dialog-token").parentElement.hidden = hasToken();
	$("dialog-token").value = "";
	$("dialog-no").onclick = () => $("dialog").close();
	$("dialog-form").onsubmit = async (event) => {
		event.preventDefault();
		if ($("dialog-token").value) setToken($("dialog-token").value);
		$("dialog-yes").disabled = true;
		try {
			await act($("dialog-value").value);
			$("dialog").close();
		} catch (problem) {
			refuse(problem.message);
			if (problem instanceof Refused && problem.status === 401) {
				setToken("");
				$("dialog-token").parentElement.hidden = false;
			}
		} finally {
			$("dialog-yes").disabled = false;
		}
	};
	$("dialog").showModal();
}

export const ask = {
	drain(donor) {
		const here = format.size(donor.uses.reduce((sum, use) => sum + use.bytes, 0));
		const undo = donor.state === "draining";
		open({
			title: undo ? `Use donor ${donor.name} again?` : `Drain donor ${donor.name}?`,
			text: undo ?
				"VMs of this host may use its memory again. This has no effect if the donor itself " +
				"drains." :
				`This host puts no more memory on it, and moves the memory of its VMs (${here}) to other ` +
				"donors, or into direct memory if there is room. Memory without room elsewhere stays " +
				"on the donor. Other hosts keep using it.",
			yes: undo ? "Use again" : "Drain",
			value: null,
			act: () => post("/api/drain", { donor: donor.name, undo }),
		});
	},
	budget(key, vm) {
		open({
			title: `Budget of ${vm.name}`,
			text: `The most of the VM's memory on this host. Now ${format.size(vm.budget_bytes)}, ` +
				`${format.size(vm.direct_bytes)} direct; smallest ${format.size(vm.min_budget_bytes)}. ` +
				"With less the VM faults more often; more takes memory of this host.",
			yes: "Change",
			value: format.size(vm.budget_bytes),
			act: (text) => {
				const bytes = format.parse(text);
				if (!(bytes > 0)) throw new Error("write a size: 256M or 1.5G");
				return post("/api/budget", { vm: key, bytes });
			},
		});
	},
};
