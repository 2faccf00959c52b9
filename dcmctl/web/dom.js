// SPDX-License-Identifier: GPL-2.0-or-later
// Elements are made from text, never from markup: names from outside stay text.

export const $ = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
	const node = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes)) {
		if (name === "class") node.className = value;
		else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
		else node.setAttribute(name, value);
	}
	node.append(...children.filter((child) => child !== null));
	return node;
}

// Writes only text that differs, so that a selection or the focus is kept.
export function say(node, text) {
	if (node.textContent !== text) node.textContent = text;
}

export function level(node, base, name) {
	const wanted = name ? `${base} ${name}` : base;
	if (node.className !== wanted) node.className = wanted;
}

export function width(node, share) {
	node.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
}

// The children of a node, one for each item; a child is kept as long as its key exists.
export function keyed(parent, items, keyOf, make, update) {
	const old = new Map();
	for (const child of [...parent.children]) old.set(child.dataset.key, child);
	items.forEach((item, index) => {
		const key = keyOf(item);
		let child = old.get(key);
		if (child) {
			old.delete(key);
		} else {
			child = make(item);
			child.dataset.key = key;
		}
		if (parent.children[index] !== child)
			parent.insertBefore(child, parent.children[index] ?? null);
		update(child, item);
	});
	for (const child of old.values()) child.remove();
}
