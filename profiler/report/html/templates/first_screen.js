// The first screen is drawn from its own small tables as soon as the parser is past the sentence,
// before the timeline is unpacked and long before a figure.

import { page } from "./data.js";
import { DevicesStrip } from "./devices_strip.js";
import { Icicle } from "./icicle.js";
import { DataTable } from "./tables.js";

export function startFirstScreen() {
  const found = {
    strip: page.strip.devices.length ? new DevicesStrip(document.getElementById("first-strip")) : null,
    icicle: page.icicle ? new Icicle(document.getElementById("first-icicle")) : null,
  };
  for (const [name, canvas] of Object.entries(found)) {
    if (canvas) canvas.start();
    else document.getElementById(`first-${name}`).hidden = true;
  }
  if (page.shapes) new DataTable(document.getElementById("first-shapes"), page.shapes);
  window.profileFirst = found;
  performance.mark("first-screen");
  requestAnimationFrame(() => setTimeout(() => performance.mark("first-screen-painted")));
}
