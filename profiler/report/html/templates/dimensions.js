// What can be chosen, by which columns tell it and when two values of it are the same.

import { say } from "./language.js";
import { liesIn, pattern } from "./nodes.js";

export const DIMENSIONS = ["stage", "submodule", "module", "branch", "step", "device", "role", "operator", "call"];
export const NUMBERED = new Set(["step", "call"]); // whose values are numbers
export const OF_WORK = ["role", "operator", "module"]; // tell commands of one call apart

// A value with the name of its dimension, as chips and sentences have it.
export const NAMED = {
  stage: (value) => say("stage {value}", { value }),
  submodule: (value) => say("submodule {value}", { value }),
  module: (value) => say("module {value}", { value }),
  branch: (value) => say("branch {value}", { value }),
  step: (value) => say("step {value}", { value }),
  device: (value) => say("device {value}", { value }),
  role: (value) => say("role {value}", { value }),
  operator: (value) => say("operator {value}", { value }),
  call: (value) => say("call {value}", { value }),
};

// Whether an attribute of rows says which value of a dimension they have: a layer says which operator it is and
// which modules it lies in.
export function determines(attribute, dimension) {
  return dimensionOf(attribute) === dimension || (dimension === "module" && attribute === "layer");
}

// The choice that a table's column of this name can follow, undefined for none.
export function dimensionOf(column) {
  if (column === "layer") return "operator";
  if (column === "devices") return "device";
  return DIMENSIONS.includes(column) && column !== "operator" ? column : undefined;
}

// Whether a value of a row stands for a chosen one: patterns for their layers and the other way round.
export function sameValue(dimension, value, chosen) {
  if (value === chosen) return true;
  if (dimension === "module") return liesIn(value, chosen);
  if (dimension === "operator") return pattern(value) === chosen || value === pattern(chosen);
  return dimension === "device" && String(value).split(", ").includes(chosen);
}
