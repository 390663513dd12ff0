// Nodes of the module tree: what each stands for, and which layers lie in it.

import { page } from "./data.js";

export const OF_NODE = ["stage", "submodule", "module", "role", "operator"]; // dimensions that a node chooses

// `blocks.[0-22,24].attn` as a test of layers: `*` is any number, `[…]` one of these.
const madeOfModules = new Map();
function moduleTest(module) {
  if (!madeOfModules.has(module)) {
    const ranges = [];
    const source = module.split(/(\*|\[[0-9,-]+\])/).map((part, at) => {
      if (at % 2 === 0) return part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
      ranges.push(part === "*" ? null : part.slice(1, -1).split(",").map((range) => range.split("-").map(Number)));
      return "([0-9]+|\\*)";
    }).join("");
    madeOfModules.set(module, { form: new RegExp(`^${source}(?:\\.|$)`), ranges });
  }
  return madeOfModules.get(module);
}

// Whether a layer lies in a module: `/` and `.` both part a path.
export function liesIn(layer, module) {
  if (typeof layer !== "string") return false;
  const { form, ranges } = moduleTest(module), found = form.exec(layer.replace(/^\//, "").replace(/\//g, "."));
  return found !== null && ranges.every((wanted, at) => wanted === null || found[at + 1] === "*" ||
    wanted.some(([first, last = first]) => first <= Number(found[at + 1]) && Number(found[at + 1]) <= last));
}

// The layer that an operator in a module has if the trace has op types in it, numbers folded.
function layerOf(path, name) { return path ? pattern(`${path.replace(/\[[0-9,-]+\]/g, "*")}/${name}`) : name; }

// The tree that values of a table are: parents (-1 of the first), children, and what each node chooses.
export class Nodes {
  constructor({ depth, name, kind, label }) {
    Object.assign(this, { depth: [], parent: [], children: depth.map(() => []), picks: [], paths: [] });
    const way = [];
    depth.forEach((levels, i) => {
      const deep = Math.min(levels, way.length); // a node lies in the one before it or around that
      way.length = deep;
      this.depth.push(deep);
      this.parent.push(deep ? way[deep - 1] : -1);
      if (deep) this.children[way[deep - 1]].push(i);
      way.push(i);
      this.place(i, kind[i], name[i] ?? label[i]);
    });
  }

  place(i, kind, name) {
    const up = this.parent[i], above = this.picks[up] ?? {}, path = this.paths[up] ?? "";
    this.paths.push(kind === "module" ? (path ? `${path}.${name}` : name) : path);
    const { stage, submodule, role } = above, module = path || undefined;
    this.picks.push({
      stage: { stage: name }, submodule: { stage, submodule: name }, module: { stage, submodule, module: this.paths[i] },
      waiting: { stage, submodule }, role: { stage, submodule, role: name }, operator: { stage, submodule, module, role, operator: layerOf(path, name) },
    }[kind] ?? {});
  }
}

// The paths of modules that trees of this page have.
export function modulePaths() {
  const trees = Object.values(page.tables_shown).filter(({ nested }) => nested);
  return trees.flatMap(({ values }) => new Nodes(values).paths).filter(Boolean);
}

// The layer of a repeated block without its number, as profiler/report/patterns.py folds it.
export function pattern(layer) {
  return layer.replace(/(^|[^0-9A-Za-z])[0-9]+(?=$|[^0-9A-Za-z])/g, "$1*");
}
