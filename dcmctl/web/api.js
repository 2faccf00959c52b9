// SPDX-License-Identifier: GPL-2.0-or-later
// Requests to the server. Only this page's memory holds the token.

let token = "";

export class Refused extends Error {
	constructor(status, message) {
		super(message);
		this.status = status;
	}
}

export function setToken(text) {
	token = text.trim();
}

export const hasToken = () => token !== "";

async function ask(path, options = {}) {
	const headers = { ...options.headers };
	if (token) headers.Authorization = `Bearer ${token}`;
	const answer = await fetch(path, { ...options, headers, credentials: "omit" });
	const body = await answer.json();
	if (!answer.ok) throw new Refused(answer.status, body.error ?? answer.statusText);
	return body;
}

export const get = (path, query, signal) => ask(`${path}?${new URLSearchParams(query)}`, { signal });

export const post = (path, body) =>
	ask(path, {
		method: "POST",
		headers: { "Content-Type": "application/json" },
		body: JSON.stringify(body),
	});
