// The page's data: what the first screen shows as JSON, the rest of it packed JSON, events as packed
// columns (see profiler/report/pack.py).

export const page = JSON.parse(document.getElementById("page-data").textContent);

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

let inflatedColumns; // a promise of their bytes

export function inflateColumns() { inflatedColumns = inflated("page-columns"); }

export async function inflated(id) {
  const packed = bytesOf(document.getElementById(id).textContent.trim());
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// A function from the name of a table to {rows, column: Int32Array or Float64Array}.
export async function packedTables() {
  const bytes = new Uint8Array(await inflatedColumns);
  return (name) => unpackedTable(bytes, page.tables[name]);
}

export function unpackedTable(bytes, { rows, columns }) {
  const table = { rows };
  for (const [column, { at, width, base, real, plus, after }] of Object.entries(columns)) {
    table[column] = real ? doubles(bytes, rows, at) : unpacked(bytes, rows, at, width, base, plus || after);
    if (plus) for (let i = 0; i < rows; i++) table[column][i] += table[plus][i];
  }
  for (const [column, { after }] of Object.entries(columns)) {
    if (after) for (let i = 1; i < rows; i++) table[column][i] += table[column][i - 1] + table[after][i - 1];
  }
  return table;
}

// A column of whole numbers; of differences the sums may be larger.
function unpacked(bytes, rows, at, width, base, differences) {
  const small = width < 4 && Math.abs(base) < 2 ** 30 && !differences;
  const values = small ? new Int32Array(rows) : new Float64Array(rows);
  values.fill(base);
  for (let plane = 0, weight = 1; plane < width; plane++, weight *= 256, at += rows) {
    for (let i = 0; i < rows; i++) values[i] += bytes[at + i] * weight;
  }
  return values;
}

function doubles(bytes, rows, at) {
  const own = new Uint8Array(rows * 8);
  for (let plane = 0; plane < 8; plane++) for (let i = 0; i < rows; i++) own[i * 8 + plane] = bytes[at + plane * rows + i];
  return new Float64Array(own.buffer);
}
