// Charts at the page's width.

import { literal, shortened } from "./format.js";
import { LEGEND_LINE, LEGEND_LINES, legendLines, legendRoom } from "./rooms.js";
import { rowNames } from "./row_names.js";

const NARROW = 640; // pixels of a figure
const NARROW_NAME = 20; // characters of the name of a row there

// A layout at the page's width. A narrow one has more room for labels at the ends of bars and for
// the lines of its legend, fewer ticks, and shorter names of rows and columns.
export function fitted(data, layout, width) {
  const axis = { ...layout.xaxis }, made = { ...layout, xaxis: axis, width };
  const narrow = width < NARROW, rows = layout.yaxis.ticktext, columns = layout.meta?.columns;
  if (axis.range) axis.range = [axis.range[0], axis.range[1] * (narrow ? 1.35 : 1)];
  if (narrow && rows) made.yaxis = { ...layout.yaxis, ticktext: narrowNames(rows.map(plain)).map(literal) };
  if (narrow && columns) axis.ticktext = columns;
  if (axis.tickvals) {
    const room = width - (rows ? (narrow ? 150 : 320) : 0);
    const every = Math.max(1, Math.ceil((axis.tickvals.length * 30) / room));
    axis.ticktext = axis.ticktext.filter((_, i) => i % every === 0);
    axis.tickvals = axis.tickvals.filter((_, i) => i % every === 0);
  }
  const lines = linesOf({ data, layout }, width);
  if (lines > LEGEND_LINES) {
    made.height = layout.height + legendRoom(lines);
    made.legend = { ...layout.legend, maxheight: LEGEND_LINE * (lines + 1) };
  }
  return made;
}

// A path keeps its end, unless another row would be called the same.
function narrowNames(names) {
  const short = names.map((name) => shortened(name, NARROW_NAME)), distinct = new Set(names).size;
  return new Set(short).size === distinct ? short : rowNames(names, (text) => text.length <= NARROW_NAME);
}

// The text that `literal` made this of.
function plain(text) {
  return text.replace(/<br>/g, "\n").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
}

// Of its legend.
function linesOf({ data, layout }, width) {
  return layout.showlegend && width ? legendLines(data.length, Math.max(0, ...data.map(({ name }) => (name ?? "").length)), width) : 0;
}

// How tall a chart is at a width.
export function heightOf(chart, width) { return chart.layout.height + legendRoom(linesOf(chart, width)); }

export function fittedData(data, width) {
  if (width >= NARROW) return data;
  return data.map((trace) => (trace.colorbar ? { ...trace, showscale: false } : trace));
}
