// Links of findings: to an operator in its table, to a call in the timeline.

function startFindings(explorer, tables) {
  const timeline = document.getElementById("timeline");
  for (const button of document.querySelectorAll(".finding button")) {
    const { findLayer, findSubmodule, findCall } = button.dataset;
    button.addEventListener("click", () => {
      if (findCall === undefined) return tables.operators?.find(findLayer ?? findSubmodule);
      const call = explorer.callNumbered(Number(findCall));
      if (!call) return;
      explorer.select(call, true);
      timeline.scrollIntoView();
    });
  }
}
