// SPDX-License-Identifier: GPL-2.0-or-later
// The four charts of one VM, from the points of its history.

import uPlot from "./vendor/uPlot.esm.js";
import { $ } from "./dom.js";
import * as format from "./format.js";

const HEIGHT = 170;
const HOUR = 3600;

// Series by the names of the fields in the server's points.
const CHARTS = [
	{
		id: "chart-memory", format: format.size, base: 2,
		series: [
			{ name: "direct_bytes", label: "direct", color: "--s0", fill: true },
			{ name: "budget_bytes", label: "budget", color: "--dim", dash: [6, 4] },
			{ name: "indirect_bytes", label: "on donors", color: "--s1" },
		],
	},
	{
		id: "chart-faults", format: format.count,
		series: [
			{ name: "faults_per_s", label: "all", color: "--s0", fill: true },
			{ name: "missing_per_s", label: "from a donor", color: "--s1" },
		],
	},
	{
		id: "chart-latency", format: format.ns, log: true,
		series: [
			{ name: "fault_p50_ns", label: "p50", color: "--s0" },
			{ name: "fault_p99_ns", label: "p99", color: "--s1" },
		],
	},
	{
		id: "chart-traffic", format: format.size, base: 2,
		series: [
			{ name: "fetched_bytes_per_s", label: "in", color: "--s0" },
			{ name: "written_bytes_per_s", label: "out", color: "--s1" },
		],
	},
];

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Ticks of the axis: powers of two, powers of ten, or uPlot's own.
function steps(chart) {
	if (chart.base !== 2) return undefined;
	return Array.from({ length: 42 }, (_, at) => 2 ** at);
}

function range(chart) {
	if (chart.log) return undefined;
	return (_, low, high) => [0, high > 0 ? high * 1.08 : 1];
}

// On a logarithmic axis, lines at powers of ten only.
const tens = (_, at) => at.map((v) => (Number.isInteger(Math.log10(v)) ? v : null));

function times(plot, at) {
	const short = plot.scales.x.max - plot.scales.x.min < 600;
	return at.map((t) => format.clock(t).slice(0, short ? 8 : 5));
}

function options(chart, width) {
	const axis = {
		stroke: color("--dim"),
		grid: { stroke: color("--line"), width: 1 },
		ticks: { stroke: color("--line"), width: 1 },
		font: "11px system-ui, sans-serif",
	};
	return {
		width,
		height: HEIGHT,
		scales: {
			x: { time: true },
			y: chart.log ? { distr: 3, log: 10 } : { range: range(chart) },
		},
		cursor: { points: { size: 6 }, drag: { x: false, y: false } },
		legend: { live: true },
		axes: [
			{ ...axis, space: 80, values: times },
			{
				...axis,
				grid: chart.log ? { ...axis.grid, filter: tens } : axis.grid,
				ticks: chart.log ? { ...axis.ticks, filter: tens } : axis.ticks,
				size: 56,
				incrs: steps(chart),
				values: (_, at) => at.map((v) => (v === null ? "" : chart.format(v))),
			},
		],
		series: [
			{ label: "at", value: (_, v) => (v === null ? "-" : format.clock(v)) },
			...chart.series.map((s) => ({
				label: s.label,
				stroke: color(s.color),
				width: s.dash ? 1.5 : 2,
				dash: s.dash,
				fill: s.fill ? `${color(s.color)}22` : undefined,
				points: { show: false },
				spanGaps: false,
				value: (_, v) => (v === null || v === undefined ? "-" : chart.format(v)),
			})),
		],
	};
}

export class Charts {
	constructor() {
		this.names = [];
		this.columns = [];
		this.plots = new Map();
		const redraw = () => this.#make();
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
		new ResizeObserver(() => this.#resize()).observe($("one"));
	}

	// Another VM, or a restarted one.
	show(names, points) {
		this.names = names;
		this.columns = names.map((_, at) => points.map((point) => point[at]));
		this.#make();
	}

	add(point) {
		if (!this.columns.length) return;
		const times = this.columns[0];
		if (times.length && point[0] <= times[times.length - 1]) return;
		this.columns.forEach((column, at) => column.push(point[at]));
		while (times.length && times[0] < point[0] - HOUR)
			this.columns.forEach((column) => column.shift());
		for (const chart of CHARTS) {
			const plot = this.plots.get(chart.id);
			plot?.setData(this.#data(chart));
			this.#newest(plot);
		}
	}

	// The legend's values while the pointer is not on a chart.
	#newest(plot) {
		if (plot && plot.cursor.left < 0) plot.setLegend({ idx: plot.data[0].length - 1 });
	}

	#data(chart) {
		const column = (name) => this.columns[this.names.indexOf(name)] ?? [];
		// There is no logarithm of 0.
		const plain = (name) => (chart.log ? column(name).map((v) => v || null) : column(name));
		return [column("time"), ...chart.series.map((s) => plain(s.name))];
	}

	#width(parent) {
		return Math.max(200, parent.clientWidth);
	}

	#make() {
		for (const plot of this.plots.values()) plot.destroy();
		this.plots.clear();
		for (const chart of CHARTS) {
			const parent = $(chart.id);
			if (!this.columns.length || !parent.clientWidth) continue;
			const plot = new uPlot(options(chart, this.#width(parent)), this.#data(chart), parent);
			plot.over.addEventListener("mouseleave", () => this.#newest(plot));
			this.plots.set(chart.id, plot);
			this.#newest(plot);
		}
	}

	#resize() {
		if (!this.plots.size) this.#make();
		for (const [id, plot] of this.plots) {
			const width = this.#width($(id));
			if (plot.width !== width) plot.setSize({ width, height: HEIGHT });
		}
	}
}
