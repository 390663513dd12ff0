// Links of findings: to an operator in its table, to a call in the timeline; what a finding is about
// can be chosen.

function startFindings(explorer, tables, choice) {
  const timeline = document.getElementById("timeline");
  const ofLayers = Object.entries(tables).find(([key]) => page.tables_shown[key].opens === "layers")?.[1];
  for (const button of document.querySelectorAll(".finding button")) {
    const { findLayer, findSubmodule, findCall } = button.dataset;
    button.addEventListener("click", () => {
      if (findCall === undefined) return findLayer === undefined ? ofLayers?.find(findSubmodule, "submodule") : ofLayers?.find(findLayer);
      const call = explorer.callNumbered(Number(findCall));
      if (!call) return;
      explorer.select(call, true);
      timeline.scrollIntoView();
    });
  }
  const draw = () => {
    for (const finding of document.querySelectorAll(".finding")) drawChooser(finding, choice);
  };
  choice.follow(draw);
  whenSpoken(draw);
  draw();
}

// A button for everything that a finding is about, at once.
function drawChooser(finding, choice) {
  const pick = pickOf(finding, choice);
  if (!Object.keys(pick).length) return;
  let where = finding.querySelector(".where");
  if (!where) finding.append(where = element("p", { class: "where" }));
  const before = where.querySelector("button.pick"), focused = before && before === document.activeElement;
  const button = pickButton(choice, pick, say("Filter by this"));
  if (before) before.replaceWith(button); else where.append(button);
  if (focused) button.focus();
}

// What a finding names and the run has, as profiler/report/html/findings.py wrote it.
function pickOf({ dataset }, choice) {
  const pick = {};
  for (const dimension of DIMENSIONS) {
    const text = dataset[`about${dimension[0].toUpperCase()}${dimension.slice(1)}`];
    if (text === undefined) continue;
    const value = NUMBERED.has(dimension) ? Number(text) : text;
    if (choice.exists(dimension, value)) pick[dimension] = value;
  }
  return pick;
}
