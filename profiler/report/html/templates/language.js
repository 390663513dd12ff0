// The page's languages: English text from the scripts and the page, other languages from its data.

import { page } from "./data.js";

export const LANGUAGES = { en: "English", ko: "한국어" };
export const speech = { language: "en", followers: [] };

// The English template in the reader's language: say("{n} of {all} rows", { n: 3, all: 12 }).
// The template stands literally in the call: profiler/report/language.py collects it from there.
export function say(template, values = {}) {
  const found = page.messages?.[speech.language]?.[template] ?? template;
  return found.replace(/\{(\w+)\}/g, (place, name) => Object.hasOwn(values, name) ? String(values[name]) : place);
}

// A template that is said later, such as the name of a table.
export const message = (template) => template;

// What shows texts that scripts made follows the language: `follow` runs after each change, with
// `node` as long as that is in the page.
export function whenSpoken(follow, node = document) {
  speech.followers.push({ follow, node });
}

export function speak(language) {
  if (!Object.hasOwn(LANGUAGES, language) || language === speech.language) return;
  speech.language = language;
  document.documentElement.lang = language;
  speakElements();
  speech.followers = speech.followers.filter(({ node }) => node.isConnected);
  for (const { follow } of speech.followers) follow(language);
}

// Elements written by profiler/report/language.py: `data-ko` is the text of one, `data-ko-title`
// that of its attribute. The English ones are kept when they are first replaced.
function speakElements() {
  const others = Object.keys(LANGUAGES).filter((name) => name !== "en");
  const attributes = ["title", "aria-label", "placeholder"];
  for (const other of others) {
    for (const node of document.querySelectorAll(`[data-${other}]`)) {
      node.dataset.en ??= node.textContent;
      node.textContent = node.dataset[speech.language] ?? node.dataset.en;
    }
    for (const name of attributes) {
      for (const node of document.querySelectorAll(`[data-${other}-${name}]`)) {
        if (!node.hasAttribute(`data-en-${name}`)) node.setAttribute(`data-en-${name}`, node.getAttribute(name));
        node.setAttribute(name, node.getAttribute(`data-${speech.language}-${name}`) ?? node.getAttribute(`data-en-${name}`));
      }
    }
  }
}

// The texts of a figure in the reader's language: `page.spoken` has their places in its JSON.
export function spokenFigure(key, chart) {
  const changes = page.spoken?.[speech.language]?.[key];
  if (!changes) return chart;
  const made = structuredClone(chart);
  for (const [path, text] of changes) {
    const last = path[path.length - 1];
    let place = made;
    for (const part of path.slice(0, -1)) place = place?.[part];
    if (place) place[last] = text;
  }
  return made;
}

// Dates and numbers stay; the first language is that of the address, of the file, of the reader.
function firstLanguage() {
  const asked = /(?:^#|&)lang=([a-z]{2})(?:&|$)/.exec(location.hash)?.[1];
  if (Object.hasOwn(LANGUAGES, asked ?? "")) return asked;
  if (Object.hasOwn(LANGUAGES, page.language ?? "")) return page.language;
  const known = navigator.languages.map((name) => name.slice(0, 2)).find((name) => Object.hasOwn(LANGUAGES, name));
  return known ?? "en";
}

export function startSpeech() {
  const button = document.getElementById("language");
  const label = () => {
    const next = speech.language === "en" ? "ko" : "en";
    button.textContent = LANGUAGES[next];
    button.lang = next;
    button.dataset.next = next;
  };
  button.addEventListener("click", () => speak(button.dataset.next));
  whenSpoken(label);
  speak(firstLanguage());
  label();
}
