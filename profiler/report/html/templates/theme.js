// What all scripts share, the theme, and what paper does with it.

import { say, whenSpoken } from "./language.js";

const THEMES = ["auto", "light", "dark"];
const darkness = matchMedia("(prefers-color-scheme: dark)");
export const report = { theme: "auto", printing: false, timeline: null, choice: null, themed: [], tables: {}, followers: [] };

export function currentTheme() {
  if (report.printing) return "light";
  return report.theme === "auto" ? (darkness.matches ? "dark" : "light") : report.theme;
}

function applyTheme() {
  const theme = currentTheme();
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = {
    auto: () => say("Theme: auto"), light: () => say("Theme: light"), dark: () => say("Theme: dark"),
  }[report.theme]();
  for (const follow of report.themed) follow(theme);
}

// Paper is light, and everything is drawn again for its width.
function printed(printing) {
  if (report.printing === printing) return;
  report.printing = printing;
  document.documentElement.classList.toggle("printing", printing);
  unfoldParts(printing);
  applyTheme();
  report.timeline?.arrange();
  report.timeline?.drawNow();
}

// On paper nothing can be unfolded: what is closed opens for as long as it is printed.
function unfoldParts(printing) {
  const found = printing ? ":is(details.part, details.bookkeeping):not([open])" : "details[data-unfolded]";
  for (const part of document.querySelectorAll(found)) {
    part.open = printing;
    part.toggleAttribute("data-unfolded", printing);
  }
}

export function startTheme() {
  document.getElementById("theme").addEventListener("click", () => {
    report.theme = THEMES[(THEMES.indexOf(report.theme) + 1) % THEMES.length];
    applyTheme();
  });
  darkness.addEventListener("change", applyTheme);
  whenSpoken(applyTheme);
  matchMedia("print").addEventListener("change", (event) => printed(event.matches));
  addEventListener("beforeprint", () => printed(true));
  addEventListener("afterprint", () => printed(false));
  applyTheme();
}
