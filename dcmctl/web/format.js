// SPDX-License-Identifier: GPL-2.0-or-later
// Sizes, counts and times, in exactly the form of dcmctl (lib/units.py).

// Python rounds halves to even.
function whole(number) {
	const down = Math.floor(number);
	const rest = number - down;
	if (rest !== 0.5) return Math.round(number);
	return down % 2 ? down + 1 : down;
}

function scaled(number, units, step, limit, tenths) {
	let at = 0;
	while (Math.abs(number) >= limit && at < units.length - 1) {
		number /= step;
		at++;
	}
	const one = number.toFixed(1);
	if (tenths(at, number) && Number(one) !== whole(number)) return one + units[at];
	return whole(number) + units[at];
}

export function size(bytes) {
	if (bytes === null || bytes === undefined) return "-";
	return scaled(bytes, ["", "K", "M", "G", "T"], 1024, 1023.5,
		(at, number) => at > 0 && Math.abs(number) < 9.95);
}

export function count(value) {
	if (value === null || value === undefined) return "-";
	return scaled(value, ["", "k", "M", "G", "T"], 1000, 999.5, (_, number) => number < 99.95);
}

export function ns(value) {
	if (!value) return "-";
	return scaled(value, ["ns", "us", "ms", "s"], 1000, 999.5,
		(at, number) => at > 0 && number < 9.95);
}

export function percent(share) {
	return share === null ? "-" : `${(share * 100).toFixed(1)}%`;
}

export function clock(seconds) {
	return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}

// Parses a size that a user writes: 256M, 1.5G. NaN if it is not one.
export function parse(text) {
	const match = /^(\d{1,15})(?:\.(\d{1,6}))?\s*([KMGT]?)(?:I?B)?$/i.exec(text.trim());
	if (!match) return NaN;
	const shift = { "": 0, K: 10, M: 20, G: 30, T: 40 }[match[3].toUpperCase()];
	if (match[2] && !shift) return NaN;
	return Math.floor(Number(`${match[1]}.${match[2] ?? 0}`) * 2 ** shift);
}
