// The page's data: small things as JSON, events as packed columns (see profiler/report/pack.py).

const page = JSON.parse(document.getElementById("page-data").textContent);

// Codes of categories of commands; one track may have commands of several.
const HOST_WORK = page.timeline.categories.indexOf("host"), COMPUTING = page.timeline.categories.indexOf("compute");

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function inflated(id) {
  const packed = bytesOf(document.getElementById(id).textContent.trim());
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// table -> {rows, column: Int32Array or Float64Array}
async function unpackedTables() {
  const bytes = new Uint8Array(await inflated("page-columns"));
  const tables = {};
  for (const [name, { rows, columns }] of Object.entries(page.tables)) {
    tables[name] = { rows };
    for (const [column, { at, width, base }] of Object.entries(columns)) {
      tables[name][column] = unpacked(bytes, rows, at, width, base);
    }
  }
  return tables;
}

function unpacked(bytes, rows, at, width, base) {
  const small = width < 4 && Math.abs(base) < 2 ** 30;
  const values = small ? new Int32Array(rows) : new Float64Array(rows);
  values.fill(base);
  for (let plane = 0, weight = 1; plane < width; plane++, weight *= 256, at += rows) {
    for (let i = 0; i < rows; i++) values[i] += bytes[at + i] * weight;
  }
  return values;
}
