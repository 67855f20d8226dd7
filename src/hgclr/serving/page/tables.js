// Reads and writes files of texts in the browser's memory: CSV and TSV (RFC 4180), JSON lines, plain lines.

const MAXIMUM = 200 * 2 ** 20; // bytes

/** A fault of the file, for the user to fix. */
export class FileError extends Error {}

/**
 * Read a file. Returns `{ kind, delimiter, columns, rows }`: `rows` are arrays of cells, in the order of `columns`; of
 * JSON lines they are the objects themselves.
 */
export async function readFile(file) {
  if (file.size > MAXIMUM) {
    throw new FileError("This file is larger than 200 MB. Label it with hgclr predict.");
  }
  return readTable(decode(new Uint8Array(await file.arrayBuffer())), file.name);
}

/** Read a table from text; the name's ending decides the format. */
function readTable(text, name) {
  const ending = name.toLowerCase().split(".").at(-1);
  const table = ["jsonl", "ndjson", "json"].includes(ending)
    ? readJsonLines(text)
    : ["csv", "tsv", "tab"].includes(ending)
      ? readDelimited(text, ending === "csv" ? guessDelimiter(text) : "\t")
      : readLines(text);
  if (!table.rows.length) throw new FileError("This file has no rows.");
  return table;
}

/** Return a table with added columns as text; a column is a name and a function from a row's number to its value. */
export function writeTable(table, added) {
  const names = freshNames(added.map(([name]) => name), table.columns);
  if (table.kind === "jsonl") {
    const lines = table.rows.map((row, number) => {
      const values = added.map(([, value], place) => [names[place], value(number)]);
      return JSON.stringify({ ...row, ...Object.fromEntries(values.filter(([, value]) => value !== undefined)) });
    });
    return `${lines.join("\n")}\n`;
  }
  const line = (cells) => cells.map((cell) => quote(cell, table.delimiter)).join(table.delimiter);
  const lines = table.rows.map((row, number) => line([...row, ...added.map(([, value]) => value(number) ?? "")]));
  return `${[line([...table.columns, ...names]), ...lines].join("\r\n")}\r\n`;
}

/** Return the text of a row, or undefined if it has none. */
export function cellOf(table, row, column) {
  const cell = table.kind === "jsonl" ? table.rows[row][column] : table.rows[row][table.columns.indexOf(column)];
  return typeof cell === "string" ? cell : undefined;
}

function decode(bytes) {
  const little = bytes[0] === 0xff && bytes[1] === 0xfe;
  try {
    return new TextDecoder(little ? "utf-16le" : "utf-8", { fatal: true }).decode(bytes); // without its byte order mark
  } catch {
    throw new FileError("This file is not UTF-8. Save it as UTF-8 and choose it again.");
  }
}

function readLines(text) {
  const lines = text.split(/\r?\n/);
  if (lines.at(-1) === "") lines.pop();
  return { kind: "lines", delimiter: ",", columns: ["text"], rows: lines.map((line) => [line]) };
}

function readJsonLines(text) {
  const columns = new Set();
  const rows = [];
  text.split(/\r?\n/).forEach((line, number) => {
    if (!line.trim()) return;
    let row;
    try {
      row = JSON.parse(line);
    } catch {
      throw new FileError(`Line ${number + 1} is not JSON.`);
    }
    if (row === null || typeof row !== "object" || Array.isArray(row)) {
      throw new FileError(`Line ${number + 1} is not a JSON object.`);
    }
    for (const name of Object.keys(row)) columns.add(name);
    rows.push(row);
  });
  return { kind: "jsonl", columns: [...columns], rows };
}

function readDelimited(text, delimiter) {
  const [columns, ...rows] = readCells(text, delimiter);
  if (!columns) throw new FileError("This file is empty.");
  const twice = columns.find((name, place) => columns.indexOf(name) !== place);
  if (twice !== undefined) throw new FileError(`Two columns are called “${twice}”. Rename one of them.`);
  const bad = rows.findIndex((row) => row.length !== columns.length);
  if (bad >= 0) {
    throw new FileError(`Row ${bad + 1} has ${rows[bad].length} cells, the header has ${columns.length}.`);
  }
  return { kind: "delimited", delimiter, columns, rows };
}

/** Return the rows of delimited text, without empty lines. */
function readCells(text, delimiter) {
  const rows = [];
  const special = new RegExp(`[${delimiter}\\r\\n]`, "g");
  let [row, quoted] = [[], false];
  for (let place = 0; place < text.length; ) {
    let cell = "";
    if (text[place] === '"') {
      quoted = true;
      for (place += 1; ; ) {
        const end = text.indexOf('"', place);
        if (end < 0) throw new FileError(`A quotation mark in row ${rows.length} is never closed.`);
        cell += text.slice(place, end);
        place = end + 1;
        if (text[place] !== '"') break;
        cell += '"';
        place += 1;
      }
    }
    special.lastIndex = place;
    const end = special.exec(text)?.index ?? text.length;
    cell += text.slice(place, end);
    row.push(cell);
    place = end + 1;
    if (text[end] === delimiter) {
      if (place < text.length) continue;
      row.push("");
    }
    if (text[end] === "\r" && text[place] === "\n") place += 1;
    if (row.length > 1 || row[0] !== "" || quoted) rows.push(row);
    [row, quoted] = [[], false];
  }
  return rows;
}

/** Return the most frequent of comma, semicolon and tab in the header, outside of quotation marks. */
function guessDelimiter(text) {
  const header = text.replace(/"[^"]*"/g, "").split(/\r?\n/, 1)[0];
  const times = (mark) => header.split(mark).length;
  return [",", ";", "\t"].reduce((best, mark) => (times(mark) > times(best) ? mark : best));
}

/** Return a cell as CSV; an apostrophe before a formula keeps spreadsheets from running it. */
function quote(cell, delimiter) {
  const formula = typeof cell === "string" && /^[=+\-@\t\r\n＝＋－＠]/.test(cell) && Number.isNaN(Number(cell));
  const text = formula ? `'${cell}` : String(cell);
  return text.includes(delimiter) || /["\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Return names that no column has yet. */
function freshNames(names, taken) {
  return names.map((name) => {
    let fresh = name;
    for (let number = 2; taken.includes(fresh); number += 1) fresh = `${name}_${number}`;
    return fresh;
  });
}
