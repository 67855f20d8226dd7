// Reads and writes files of texts in the browser's memory: CSV and TSV (RFC 4180), JSON lines, plain lines. The service
// turns Excel workbooks into CSV and back.

import { convert, ServiceError } from "./api.js";
import { sentence } from "./common.js";

const WORKBOOK = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
const MAXIMUM = 200 * 2 ** 20; // bytes

/** A fault of the file, for the user to fix. */
export class FileError extends Error {}

/**
 * Read a file. Returns `{ kind, delimiter, mark, columns, rows }`: `mark` is the byte order mark or ""; `rows` are arrays of cells, in the order of `columns`; of
 * JSON lines they are the objects themselves.
 */
export async function readFile(file) {
  if (file.size > MAXIMUM) {
    throw new FileError("This file is larger than 200 MB. Label it with hgclr predict.");
  }
  if (file.name.toLowerCase().endsWith(".xlsx")) {
    const bytes = await converted(new Blob([file], { type: WORKBOOK }));
    return { ...readTable(decode(new Uint8Array(await bytes.arrayBuffer())), "sheet.csv", ","), kind: "workbook" };
  }
  const bytes = new Uint8Array(await file.arrayBuffer());
  const mark = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? "\ufeff" : "";
  return { ...readTable(decode(bytes), file.name), mark };
}

/** Return a table with added columns as a workbook; see `writeTable`. */
export function writeWorkbook(table, added) {
  const csv = writeTable({ ...table, delimiter: ",", mark: "" }, added, { typed: true });
  return converted(new Blob([csv], { type: "text/csv" }));
}

async function converted(blob) {
  try {
    return await convert(blob);
  } catch (error) {
    if (error instanceof ServiceError) throw new FileError(sentence(error.message));
    throw error;
  }
}

/** Read a table from text; the name's ending decides the format. */
function readTable(text, name, delimiter = null) {
  const ending = name.toLowerCase().split(".").at(-1);
  const table = ["jsonl", "ndjson", "json"].includes(ending)
    ? readJsonLines(text)
    : ["csv", "tsv", "tab"].includes(ending)
      ? readDelimited(text, delimiter ?? (ending === "csv" ? guessDelimiter(text) : "\t"))
      : readLines(text);
  if (!table.rows.length) throw new FileError("This file has no rows.");
  return table;
}

/**
 * Return a table with added columns as text; a column is a name and a function from a row's number to its value.
 * `typed` cells become a workbook, where a text is never run as a formula.
 */
export function writeTable(table, added, { typed = false } = {}) {
  const names = freshNames(added.map(([name]) => name), table.columns);
  if (table.kind === "jsonl") {
    const lines = table.rows.map((row, number) => {
      const values = added.map(([, value], place) => [names[place], value(number)]);
      return JSON.stringify({ ...row, ...Object.fromEntries(values.filter(([, value]) => value !== undefined)) });
    });
    return `${lines.join("\n")}\n`;
  }
  const write = typed ? enclose : quote;
  const line = (cells) => cells.map((cell) => write(cell, table.delimiter)).join(table.delimiter);
  const lines = table.rows.map((row, number) => line([...row, ...added.map(([, value]) => value(number) ?? "")]));
  return `${table.mark ?? ""}${[line([...table.columns, ...names]), ...lines].join("\r\n")}\r\n`;
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
  return enclose(formula ? `'${cell}` : cell, delimiter);
}

/** Return a cell in quotation marks, if it needs them. */
function enclose(cell, delimiter) {
  const text = String(cell);
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
