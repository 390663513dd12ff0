// Figures follow the choice: those of operators and roles show the sums of their tables for it, others mark what was chosen. What each point stands for is in `picks` of its trace, of a heat map in `picks.rows` and
// `picks.columns` (see profiler/report/chart_style.py).

import { page } from "./data.js";
import { DIMENSIONS, sameValue } from "./dimensions.js";
import { format, literal, shortened } from "./format.js";
import { say } from "./language.js";
import { inPlace } from "./picking.js";
import { report } from "./theme.js";

const UNCHOSEN = 0.22; // opacity

// The chart of a figure as the choice wants it; and what it follows, in words.
export function linkedChart(key, chart, theme) {
  const { choice } = report;
  if (!choice?.active) return { ...chart, scope: "" };
  const table = report.tables[key], draw = table?.added && { operators: operatorChart, roles: roleChart }[key];
  if (draw) {
    const rows = table.addedRows(); // the table below says what it follows, and why nothing is there
    return { ...(rows.length ? draw(rows, chart, theme) : { ...chart, data: [] }), scope: "" };
  }
  const known = DIMENSIONS.filter((name) => choice.values.has(name) && dimensionsOf(chart.data).has(name));
  if (!known.length) return { ...chart, scope: say("Whole run: this figure does not distinguish {others}.", { others: choice.sentence() }) };
  const data = chart.data.map((trace) => markedTrace(trace, choice));
  const shapes = chart.data.flatMap((trace) => cellMarks(trace, choice, theme));
  const layout = shapes.length ? { ...chart.layout, shapes } : chart.layout;
  const others = choice.sentence(DIMENSIONS.filter((name) => !known.includes(name))), marked = choice.sentence(known);
  const scope = others ? say("Whole run, {marked} marked; not by {others}.", { marked, others }) : say("Whole run, {marked} marked.", { marked });
  return { data, layout, scope };
}

// The dimensions that the points of a figure tell.
function dimensionsOf(data) {
  const all = ({ picks = [] }) => (Array.isArray(picks) ? picks : [...picks.rows, ...picks.columns]);
  return new Set(data.flatMap(all).flatMap((pick) => Object.keys(pick)));
}

function picked(pick, choice) {
  return Object.entries(pick).every(([dimension, value]) => !choice.values.has(dimension)
    || [value].flat().some((one) => choice.of(dimension).some((other) => sameValue(dimension, one, other))));
}

function markedTrace(trace, choice) {
  const { picks } = trace;
  if (!Array.isArray(picks)) return trace;
  const selectedpoints = picks.flatMap((pick, i) => (picked(pick, choice) ? [i] : []));
  return { ...trace, selectedpoints, unselected: { marker: { opacity: UNCHOSEN } } };
}

// Frames around the rows and columns of a heat map that were chosen.
function cellMarks({ picks, x, y }, choice, theme) {
  if (!picks?.rows) return [];
  // A row of a whole submodule is not marked for an operator of it.
  const outline = (lines) => {
    const names = [...new Set(lines.flatMap((pick) => Object.keys(pick)))].filter((name) => choice.values.has(name));
    return lines.flatMap((pick, i) =>
      (names.length && names.every((name) => Object.hasOwn(pick, name)) && picked(pick, choice) ? [i] : []));
  };
  const rows = outline(picks.rows), columns = outline(picks.columns);
  const line = { color: page.palette.page.text[theme], width: 2 };
  const frame = (x0, x1, y0, y1) => ({ type: "rect", x0: x0 - 0.5, x1: x1 + 0.5, y0: y0 - 0.5, y1: y1 + 0.5, line });
  if (rows.length && columns.length) {
    return rows.flatMap((row) => columns.map((column) => frame(column, column, row, row)));
  }
  return [
    ...rows.map((row) => frame(0, x.length - 1, row, row)),
    ...columns.map((column) => frame(column, column, 0, y.length - 1)),
  ];
}

// A click on a point, or on a name in the legend, chooses what it stands for.
export function startClicks(place) {
  const more = (event) => Boolean(event?.shiftKey || event?.ctrlKey || event?.metaKey);
  const choose = (pick, event) => inPlace(place, () => report.choice.pick(pick, more(event)));
  place.on("plotly_click", ({ points: [point], event }) => {
    const { picks } = point.data, at = point.pointNumber;
    if (Array.isArray(picks)) return choose(picks[at], event);
    if (picks && Array.isArray(at)) choose({ ...picks.rows[at[0]], ...picks.columns[at[1]] }, event);
  });
  place.on("plotly_legendclick", ({ data, curveNumber, event }) => {
    const pick = named(data[curveNumber]);
    if (!Object.keys(pick).length) return true;
    choose(pick, event);
    return false;
  });
  place.on("plotly_legenddoubleclick", () => false);
}

// What a trace is named after, of all that its points stand for.
function named({ name, picks = [] }) {
  return Object.fromEntries(Object.entries(picks[0] ?? {}).filter(([dimension, value]) =>
    literal(value) === name && picks.every((pick) => pick[dimension] === value)));
}

function unitFor(longest) {
  return longest >= 1e11 ? ["s", 1e-9] : longest >= 1e6 ? ["ms", 1e-6] : longest >= 1e3 ? ["µs", 1e-3] : ["ns", 1];
}

// Of an axis of categories: these rows, from the top.
function rowsOf(keys) {
  return { categoryarray: keys, tickvals: keys, range: [keys.length - 0.5, -0.5] };
}

const OPERATOR_BARS = 15; // as profiler/report/charts.py draws

function operatorChart(rows, { data: [bars], layout }, theme) {
  const shown = rows.slice(0, OPERATOR_BARS), longest = shown[0]?.total_ns ?? 0;
  const [unit, perNs] = unitFor(longest), keys = shown.map((_, i) => String(i));
  const text = (row) => literal([
    `${row.submodule ?? say("no call")}: ${shortened(row.layer, 120)}`, shortened(row.op_types ?? "", 120),
    say("{count} commands, total {total}", { count: format.count(row.commands), total: format.duration(row.total_ns) }),
  ].join("\n"));
  const fill = (row) => (Object.hasOwn(page.palette.submodules, row.submodule ?? "")
    ? page.palette.submodules[row.submodule] : page.palette.host)[theme];
  const trace = {
    ...bars, y: keys, x: shown.map((row) => row.total_ns * perNs), customdata: shown.map(text),
    marker: { ...bars.marker, color: shown.map(fill) },
    picks: shown.map(({ layer, submodule }) => (submodule === null ? { operator: layer } : { submodule, operator: layer })),
  };
  const annotation = { showarrow: false, xanchor: "left", xshift: 4 };
  return { data: [trace], layout: {
    ...layout,
    height: layout.height - 25 * (bars.x.length - Math.max(keys.length, 1)),
    yaxis: {
      ...layout.yaxis, ...rowsOf(keys), ticktext: shown.map(({ layer }) => literal(shortened(layer, 46))),
    },
    xaxis: { ...layout.xaxis, range: [0, Math.max(longest, 1) * perNs * 1.2], title: { ...layout.xaxis.title, text: unit } },
    annotations: shown.map((row, i) => ({ ...annotation, x: row.total_ns * perNs, y: keys[i], text: format.percent(row.share ?? 0) })),
  } };
}

function roleChart(rows, { layout }, theme) {
  const totals = new Map();
  for (const { submodule, total_ns } of rows) totals.set(submodule, (totals.get(submodule) ?? 0) + total_ns);
  const names = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a)), keys = names.map((_, i) => String(i));
  const data = Object.entries(page.palette.roles).flatMap(([role, colour]) => {
    const found = rows.filter((row) => row.role === role);
    if (!found.length) return [];
    return [{
      type: "bar", orientation: "h", name: role, y: found.map(({ submodule }) => keys[names.indexOf(submodule)]),
      x: found.map((row) => 100 * row.share), hovertemplate: "%{customdata}<extra></extra>",
      marker: { color: colour[theme], line: { color: page.palette.surface[theme], width: 1 } },
      customdata: found.map((row) => literal(say("{submodule}, {role}: {time}, {share} of its selected device time", {
        submodule: row.submodule, role, time: format.duration(row.total_ns), share: format.percent(row.share),
      }))),
      picks: found.map(({ submodule }) => ({ submodule, role })),
    }];
  });
  const annotation = { showarrow: false, xanchor: "left", xshift: 4, x: 100 };
  return { data, layout: {
    ...layout,
    height: layout.height - 34 * ((layout.yaxis.tickvals?.length ?? 1) - Math.max(keys.length, 1)),
    yaxis: { ...layout.yaxis, ...rowsOf(keys), ticktext: names.map((name) => literal(shortened(name, 28))) },
    annotations: names.map((name, i) => ({ ...annotation, y: keys[i], text: format.duration(totals.get(name)) })),
  } };
}
