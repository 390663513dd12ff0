// Start of the page: the first screen at once; then, when the parser has read all of the file, the rest
// of its data and its scripts, which are packed.

import { startContents } from "./contents.js";
import { inflateColumns, inflated, page } from "./data.js";
import { startFirstScreen } from "./first_screen.js";
import { element } from "./format.js";
import { say, startSpeech } from "./language.js";
import { startRooms } from "./rooms.js";
import { startTheme } from "./theme.js";

function whenParsed() {
  if (document.readyState !== "loading") return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve, { once: true }));
}

// The rest of the data joins `page`; messages and what is known of the timeline join those that are there.
function joinPage({ messages, timeline, ...rest }) {
  for (const [language, texts] of Object.entries(messages)) Object.assign((page.messages[language] ??= {}), texts);
  Object.assign(page.timeline, timeline);
  Object.assign(page, rest);
}

async function unpackRest() {
  await whenParsed();
  inflateColumns();
  const text = new TextDecoder(), [data, script] = await Promise.all(["page-rest", "page-script"].map(inflated));
  joinPage(JSON.parse(text.decode(data)));
  document.head.append(element("script", {}, text.decode(script)));
}

export function couldNotOpen(error) {
  document.getElementById("timeline-status").textContent =
    say("The timeline could not be drawn ({error}): open this page in a current browser.", { error: error.message });
  throw error;
}

startTheme();
startSpeech();
startContents();
startFirstScreen();
startRooms();
unpackRest().catch(couldNotOpen);
