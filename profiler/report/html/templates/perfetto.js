// The button that opens the merged trace in the Perfetto UI. The page loads nothing: the UI opens in
// a window of its own, which is asked until it answers and then given the trace.

import { inflated, page } from "./data.js";
import { format } from "./format.js";
import { say, whenSpoken } from "./language.js";

const PERFETTO = "https://ui.perfetto.dev";
const ASKED_EVERY = 100; // ms
const ASKED_FOR = 120; // seconds

export function startPerfetto() {
  const { trace } = page;
  if (!trace) return;
  const button = document.getElementById("perfetto"), help = document.getElementById("perfetto-help");
  const explain = (text) => {
    help.textContent = text;
    help.hidden = false;
  };
  button.hidden = false;
  const label = () => {
    button.textContent = say("Open in Perfetto");
    button.title = say("{name}, {size}", { name: trace.name, size: format.size(trace.size) });
  };
  whenSpoken(label);
  label();
  button.addEventListener("click", () => {
    if (!trace.packed) return explain(besideTheFile(trace));
    const opened = window.open(PERFETTO);
    if (!opened) return explain(say("The browser kept the window from opening: allow pop-ups for this page."));
    explain(say("Asking {address} …", { address: PERFETTO }));
    givenTo(opened, trace).then(
      () => explain(say("The Perfetto UI has the trace. It may ask first whether to trust this page.")),
      () => explain(say("{address} did not answer. {recommendation}", { address: PERFETTO, recommendation: besideTheFile(trace) })),
    );
  });
}

function besideTheFile({ name, size }) {
  return say(
    "Drag {name} ({size}), which lies beside this page, into {address}, or run profile-sd3 view on its folder.",
    { name, size: format.size(size), address: PERFETTO },
  );
}

// Resolves when the UI in `opened` answered and has the trace.
async function givenTo(opened, trace) {
  const buffer = await inflated("page-trace");
  await new Promise((answered, gaveUp) => {
    const asking = setInterval(() => opened.postMessage("PING", PERFETTO), ASKED_EVERY);
    const end = (settle) => {
      clearInterval(asking);
      clearTimeout(waiting);
      removeEventListener("message", heard);
      settle();
    };
    const heard = (event) => {
      if (event.source === opened && event.origin === PERFETTO && event.data === "PONG") end(answered);
    };
    const waiting = setTimeout(() => end(() => gaveUp(new Error("no answer"))), ASKED_FOR * 1000);
    addEventListener("message", heard);
  });
  opened.postMessage({ perfetto: { buffer, title: trace.run, fileName: trace.name } }, PERFETTO, [buffer]);
}
