// Names of rows that have too little room: cut so that each differs from the others.

const CUT = "\u2026";
const SHORTER = 4; // how many shorter texts are tried for one that no other row has

// What to write for each of `names`: the name, else the first cut of it that `fits` and could be of no other name,
// else its number.
export function rowNames(names, fits) {
  const distinct = [...new Set(names)], long = distinct.filter((name) => !fits(name));
  const beginning = sharedWords(long), ending = sharedWords(long.map((name) => name.split(" ").reverse().join(" ")));
  const found = new Map(distinct.map((name) => [name, name]));
  long.forEach((name, number) => {
    const others = distinct.filter((other) => other !== name);
    found.set(name, `${CUT}${number + 1}`);
    for (const text of cuts(name, { beginning, ending, fits, others })) {
      if (others.some((other) => couldBe(other, text))) continue;
      found.set(name, text);
      return;
    }
  });
  return names.map((name) => found.get(name));
}

// Cuts of a name that have room, the best first: without the words that all long names begin or end with, then
// without its middle, then what is around the place at which it differs.
function* cuts(name, { beginning, ending, fits, others }) {
  const whole = [beginning && CUT + name.slice(beginning), ending && name.slice(0, name.length - ending) + CUT].filter(Boolean);
  yield* whole.filter(fits);
  for (const text of [...whole, name]) yield* middleCuts(text, fits);
  const differs = firstDifference(name, others);
  for (let before = Math.min(differs, 8); before >= 0; before--) {
    const rest = name.slice(differs - before), kept = longest(rest, fits, (count) => CUT + rest.slice(0, count) + (count < rest.length ? CUT : ""));
    if (kept) yield kept;
  }
}

// Without characters in the middle, the fewest first: with as much before them as behind, then with more.
function* middleCuts(text, fits) {
  const made = (kept, head) => text.slice(0, head).trimEnd() + CUT + text.slice(text.length - kept + head).trimStart();
  const even = (kept) => made(kept, Math.ceil(kept / 2));
  let most = text.length - 1;
  while (most >= 2 && !fits(even(most))) most--;
  const counts = Array.from({ length: Math.min(SHORTER, most - 1) }, (_, i) => most - i);
  yield* counts.map(even);
  for (const kept of counts) for (let head = kept - 1; head >= 1; head--) if (fits(made(kept, head))) yield made(kept, head);
}

// The longest text of so many characters that has room, null if none of two has.
function longest(rest, fits, made) {
  for (let count = rest.length; count >= 2; count--) if (fits(made(count))) return made(count);
  return null;
}

// Whether a text with characters left out could be of that name.
function couldBe(name, text) {
  const parts = text.split(CUT), last = parts.at(-1);
  if (!name.startsWith(parts[0]) || !name.endsWith(last)) return false;
  let at = 0;
  for (const part of parts) {
    const next = name.indexOf(part, at);
    if (next < 0) return false;
    at = next + part.length;
  }
  return true;
}

// How many characters the words take, with a space behind, that all names begin with; none takes all of one.
function sharedWords(names) {
  if (names.length < 2) return 0;
  const words = names.map((name) => name.split(" "));
  let count = 0;
  while (words.every((each) => count < each.length - 1 && each[count] === words[0][count])) count++;
  return words[0].slice(0, count).reduce((sum, word) => sum + word.length + 1, 0);
}

// The place at which the name begins to differ from the one that is alike for longest.
function firstDifference(name, others) {
  let most = 0;
  for (const other of others) {
    let at = 0;
    while (at < name.length && name[at] === other[at]) at++;
    most = Math.max(most, at);
  }
  return Math.min(most, name.length - 1);
}
