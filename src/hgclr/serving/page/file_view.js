// A file on the page: choose it and its text column, label it in batches, download it.

import { predict, ServiceError, withRetries } from "./api.js";
import { alsoUnder, byId, count, deepest, delay, duration, element, pathsOf, percent, sentence } from "./common.js";
import { cellOf, FileError, readFile, writeTable } from "./tables.js";

const BATCH = 32; // texts in a request: few, for smooth progress
const TOGETHER = 2; // requests at a time: the service computes one while the next is sent
const OVERHEAD = 1024; // bytes of a request besides its texts

/**
 * Label texts. `done(rows, predictions)` is called for every batch; a prediction may be `{ error: { message } }`.
 *
 * Rejects with an AbortError when cancelled, and with a ServiceError when retries do not help.
 */
async function labelTexts(texts, { settings, limits, signal, done, waiting }) {
  const queue = batches(texts, limits, done);
  const failed = new AbortController(); // when one request fails, the others stop
  const stop = AbortSignal.any([signal, failed.signal]);
  const work = async () => {
    for (let next = queue.next(); !next.done; next = queue.next()) {
      await label(next.value, texts, { settings, signal: stop, done, waiting });
    }
  };
  try {
    await Promise.all(Array.from({ length: TOGETHER }, work));
  } catch (error) {
    failed.abort();
    throw error;
  }
}

/** Label a batch; if the service rejects it, label its halves, down to the row with the fault. */
async function label(rows, texts, options) {
  const { settings, signal, done, waiting } = options;
  const body = { texts: rows.map((row) => texts[row]), ...settings };
  try {
    const answer = await withRetries(() => predict(body, { signal }), { signal, waiting });
    done(rows, answer.predictions);
  } catch (error) {
    if (!(error instanceof ServiceError) || (error.status !== 422 && error.status !== 413)) throw error;
    if (rows.length === 1) {
      done(rows, [{ error: { message: error.message } }]);
      return;
    }
    const half = rows.length >> 1;
    await label(rows.slice(0, half), texts, options);
    await label(rows.slice(half), texts, options);
  }
}

/** Yield batches of row numbers within the service's limits; a text that exceeds them is `done` with an error. */
function* batches(texts, limits, done) {
  const share = Math.floor((limits.max_queue ?? Infinity) / TOGETHER);
  const size = Math.max(1, Math.min(BATCH, limits.texts_per_request ?? BATCH, share));
  const room = (limits.body_bytes ?? 2 ** 20) - OVERHEAD;
  let [batch, bytes] = [[], 0];
  for (let row = 0; row < texts.length; row += 1) {
    const problem = problemOf(texts[row], limits);
    if (problem) {
      done([row], [{ error: { message: problem } }]);
      continue;
    }
    const length = bytesOf(texts[row]);
    if (batch.length && (batch.length === size || bytes + length > room)) {
      yield batch;
      [batch, bytes] = [[], 0];
    }
    batch.push(row);
    bytes += length;
  }
  if (batch.length) yield batch;
}

function problemOf(text, limits) {
  if (text === undefined) return "the row has no text";
  if (!text.trim()) return "the text is empty";
  const most = limits.characters_per_text ?? Infinity;
  return text.length > most && [...text].length > most ? `the text is longer than ${most} characters` : null;
}

const encoder = new TextEncoder();

/** Return the bytes of a text in a request. */
function bytesOf(text) {
  return encoder.encode(JSON.stringify(text)).length + 1;
}

const SHOWN = 50; // rows of the preview

/** The panel for files; `settings()` returns the decisions, `announce(text)` informs screen readers. */
export class FileView {
  constructor({ settings, announce }) {
    Object.assign(this, { settings, announce, limits: {}, table: null, answers: [], running: null });
    const drop = byId("drop");
    byId("file").addEventListener("change", (event) => this.take(event.target.files[0]));
    drop.addEventListener("dragover", (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      this.take(event.dataTransfer.files[0]);
    });
    byId("column").addEventListener("change", () => this.fresh());
    byId("start").addEventListener("click", () => this.start());
    byId("cancel").addEventListener("click", () => this.running?.abort());
  }

  async take(file) {
    if (!file) return;
    this.running?.abort();
    byId("file-problem").hidden = true;
    byId("file-work").hidden = true;
    try {
      this.table = await readFile(file);
    } catch (error) {
      if (!(error instanceof FileError)) throw error;
      byId("file-problem").textContent = error.message;
      byId("file-problem").hidden = false;
      return;
    }
    this.name = file.name;
    byId("file-work").hidden = false;
    byId("file-name").textContent = file.name;
    const { columns, rows } = this.table;
    byId("file-facts").textContent = `${count(rows.length, "row")}, ${count(columns.length, "column")}`;
    byId("column-field").hidden = columns.length === 1;
    byId("column").replaceChildren(...columns.map((name) => element("option", { value: name }, name)));
    byId("column").value = this.likelyColumn();
    this.fresh();
  }

  /** Return the column named text, or else the one with the longest cells. */
  likelyColumn() {
    const { columns, rows } = this.table;
    const named = columns.find((name) => name.toLowerCase() === "text");
    if (named !== undefined) return named;
    const some = [...rows.keys()].slice(0, 100);
    const length = (name) => some.reduce((sum, row) => sum + (cellOf(this.table, row, name)?.length ?? 0), 0);
    return columns.reduce((best, name) => (length(name) > length(best) ? name : best));
  }

  /** Discard all predictions. */
  fresh() {
    this.running?.abort();
    this.answers = new Array(this.table.rows.length);
    this.errors = 0;
    this.done = 0;
    this.texts = this.table.rows.map((_, row) => cellOf(this.table, row, byId("column").value));
    this.dropDownload();
    byId("progress").hidden = true;
    byId("progress-note").textContent = "";
    byId("start").textContent = "Label the file";
    byId("start").classList.add("main");
    this.showRows();
  }

  async start() {
    this.fresh();
    const running = (this.running = new AbortController());
    const since = performance.now();
    this.show(true);
    let [note, quarter] = ["", 0];
    const showProgress = () => {
      const left = ((performance.now() - since) / 1000 / Math.max(1, this.done)) * (this.texts.length - this.done);
      byId("progress").value = this.done / this.texts.length;
      byId("progress-note").textContent = note || `${this.counted()}, about ${duration(left)} left`;
      if (Math.floor((4 * this.done) / this.texts.length) > quarter) {
        quarter = Math.floor((4 * this.done) / this.texts.length);
        if (quarter < 4) this.announce(`${quarter * 25} % of the rows labelled`);
      }
    };
    try {
      await labelTexts(this.texts, {
        settings: this.settings(),
        limits: this.limits,
        signal: running.signal,
        done: (rows, predictions) => {
          if (this.running !== running) return;
          note = "";
          rows.forEach((row, place) => this.keep(row, predictions[place]));
          showProgress();
        },
        waiting: (seconds, error) => {
          note = `${this.counted()}. ${delay(seconds, error)}`;
          showProgress();
        },
      });
      this.finish(running, `${this.counted()}, in ${duration((performance.now() - since) / 1000)}.`);
    } catch (error) {
      const why = error.name === "AbortError" ? "Cancelled." : sentence(error.message);
      this.finish(running, `${why} ${this.counted()} done.`);
    }
  }

  counted() {
    const errors = this.errors ? `, ${count(this.errors, "error")}` : "";
    return `${this.done.toLocaleString("en")} of ${count(this.texts.length, "row")}${errors}`;
  }

  keep(row, prediction) {
    this.answers[row] = prediction;
    this.done += 1;
    if (prediction.error) this.errors += 1;
    if (row < SHOWN) byId("rows").tBodies[0].rows[row].replaceWith(this.rowElement(row));
  }

  finish(running, note) {
    if (this.running !== running) return; // the user has chosen another file
    this.running = null;
    this.show(false);
    byId("progress-note").textContent = note;
    byId("start").textContent = "Label again";
    byId("start").classList.toggle("main", !this.done); // the main button is now Download
    this.announce(note);
    if (this.done) this.offerDownload();
  }

  show(running) {
    byId("start").hidden = running;
    byId("cancel").hidden = !running;
    byId("progress").hidden = false;
    byId("column").disabled = running;
    (running ? byId("cancel") : byId("start")).focus();
  }

  offerDownload() {
    const blob = new Blob([writeTable(this.table, this.columns())], { type: "text/plain;charset=utf-8" });
    const stem = this.name.replace(/\.[^.]*$/, "");
    const ending = this.table.kind === "lines" ? "csv" : this.name.split(".").at(-1);
    const link = byId("download");
    link.href = URL.createObjectURL(blob);
    link.download = `${stem}-labelled.${ending}`;
    link.textContent = this.done < this.texts.length ? "Download the rows so far" : "Download";
    link.hidden = false;
    link.focus();
  }

  dropDownload() {
    const link = byId("download");
    if (link.href) URL.revokeObjectURL(link.href);
    link.removeAttribute("href");
    link.hidden = true;
  }

  /** Return the columns to add: in JSON lines as hgclr predict writes them, in tables as hgclr reads labels. */
  columns() {
    const answer = (row) => this.answers[row];
    const error = ["error", (row) => answer(row)?.error?.message];
    const note = ["note", (row) => answer(row)?.note];
    if (this.table.kind === "jsonl") {
      return [["prediction", (row) => (answer(row)?.labels ? answer(row) : undefined)], error];
    }
    const join = (row, part, say) => answer(row)?.[part]?.map(say).join(";");
    const paths = (label) => pathsOf(label).map((path) => path.join(" > "));
    return [
      ["labels", (row) => join(row, "labels", (label) => label.id)],
      ["paths", (row) => answer(row)?.labels && deepest(answer(row).labels).flatMap(paths).join(";")],
      ["probabilities", (row) => join(row, "labels", (label) => label.probability)],
      ["abstained", (row) => join(row, "abstained", (label) => label.id)],
      ["error", (row) => error[1](row) ?? note[1](row)],
    ];
  }

  showRows() {
    const shown = Math.min(SHOWN, this.texts.length);
    const all = shown === this.texts.length;
    byId("rows-note").textContent = all ? "" : `The first ${shown} of ${count(this.texts.length, "row")}.`;
    const head = ["Row", "Text", "Labels"].map((name) => element("th", { scope: "col" }, name));
    const body = Array.from({ length: shown }, (_, row) => this.rowElement(row));
    byId("rows").replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
  }

  rowElement(row) {
    const answer = this.answers[row];
    const cell = element("td", { class: answer?.error ? "problem" : null });
    if (answer?.error) cell.append(answer.error.message);
    else if (answer && !answer.labels.length) cell.append(element("span", { class: "quiet" }, answer.note ?? "none"));
    for (const label of deepest(answer?.labels ?? [])) {
      const above = label.path.slice(0, -1).map((name) => `${name} › `).join("");
      cell.append(
        element(
          "div",
          {},
          element("bdi", { class: "quiet" }, above),
          element("bdi", {}, label.path.at(-1)),
          element("span", { class: "quiet" }, ` ${percent(label.probability)}`),
          ...pathsOf(label).slice(1).map((path) => alsoUnder(path.slice(0, -1))),
        ),
      );
    }
    const text = element("div", { class: "clamp", dir: "auto" }, (this.texts[row] ?? "").slice(0, 300));
    return element("tr", {}, element("th", { scope: "row" }, String(row + 1)), element("td", {}, text), cell);
  }
}
