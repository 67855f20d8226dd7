// Review of a labelled file: a row at a time, those first that need it most; accepted rows become training rows.

import { byId, count, deepest, element, percent } from "./common.js";
import { SearchBox } from "./tree_view.js";

/** The panel for the review; `announce(text)` informs screen readers. */
export class ReviewView {
  constructor({ announce }) {
    Object.assign(this, { announce, taxonomy: null, rows: [], place: 0 });
    this.search = new SearchBox((label) => this.add(label), "review-find", "review-found");
    byId("review-labels").addEventListener("change", (event) => this.check(event.target));
    byId("review-accept").addEventListener("click", () => this.accept());
    byId("review-previous").addEventListener("click", () => this.go(this.place - 1));
    byId("review-next").addEventListener("click", () => this.go(this.place + 1));
  }

  setTaxonomy(taxonomy) {
    this.taxonomy = taxonomy;
    this.search.setTaxonomy(taxonomy);
  }

  /** Begin with rows `{ row, text, prediction, review, suggestions }`; without rows, hide the panel. */
  begin(rows, name) {
    const options = ({ prediction, suggestions }) => {
      const chosen = deepest(prediction.labels).map((label) => ({ ...label, checked: true }));
      const known = new Set(chosen.map((label) => label.id));
      return [...chosen, ...suggestions.filter((label) => !known.has(label.id))];
    };
    this.rows = rows
      .map((row) => ({ ...row, options: options(row), accepted: false }))
      .sort((a, b) => b.review.score - a.review.score || a.row - b.row);
    this.name = `${name.replace(/\.[^.]*$/, "")}-reviewed.jsonl`;
    this.place = 0;
    byId("review").hidden = !rows.length;
    this.offerDownload();
    if (rows.length) this.show();
  }

  get current() {
    return this.rows[this.place];
  }

  go(place) {
    this.place = Math.max(0, Math.min(place, this.rows.length - 1));
    this.show();
    const { row, text } = this.current;
    this.announce(`Row ${row + 1}: ${text.slice(0, 300)}. ${this.labels()}`);
  }

  labels() {
    const names = this.checked().map((label) => label.path.at(-1));
    return names.length ? `Labels: ${names.join(", ")}` : "No label";
  }

  checked() {
    return this.current.options.filter((label) => label.checked);
  }

  check(box) {
    this.current.options[Number(box.value)].checked = box.checked;
    this.change();
  }

  /** Add a label from the tree, checked. */
  add(label) {
    const { ids, names } = this.taxonomy;
    const { options } = this.current;
    let option = options.find(({ id }) => id === ids[label]);
    if (!option) options.push((option = { id: ids[label], path: this.taxonomy.path(label).map((node) => names[node]) }));
    option.checked = true;
    this.change();
    this.announce(`${names[label]} added. ${this.labels()}`);
  }

  /** Labels that have changed are to be accepted again. */
  change() {
    this.current.accepted = false;
    this.offerDownload();
    this.show();
  }

  accept() {
    this.current.accepted = true;
    this.offerDownload();
    const next = this.rows.findIndex((row, place) => place > this.place && !row.accepted);
    this.go(next < 0 ? this.place : next);
  }

  show() {
    const { row, text, review, options, accepted } = this.current;
    const done = this.rows.filter((one) => one.accepted).length;
    byId("review-count").textContent = `${done.toLocaleString("en")} of ${count(this.rows.length, "row")} accepted`;
    byId("review-row").textContent = `Row ${row + 1} · ${review.reason}${accepted ? " · accepted" : ""}`;
    byId("review-text").textContent = text;
    const focused = document.activeElement?.name === "review" ? document.activeElement.value : null;
    const lines = options.map(({ path, probability, checked = false }, place) => {
      const box = element("input", { type: "checkbox", name: "review", value: place });
      box.checked = checked;
      const above = path.slice(0, -1).map((name) => `${name} › `).join("");
      const share = probability === undefined ? "" : ` ${percent(probability)}`;
      const parts = [element("bdi", { class: "quiet" }, above), element("bdi", {}, path.at(-1))];
      return element("label", {}, box, element("span", {}, ...parts, element("span", { class: "quiet" }, share)));
    });
    byId("review-labels").replaceChildren(...lines);
    if (focused !== null) byId("review-labels").querySelector(`[value="${focused}"]`)?.focus();
    byId("review-accept").disabled = !this.checked().length;
    byId("review-previous").disabled = this.place === 0;
    byId("review-next").disabled = this.place === this.rows.length - 1;
  }

  offerDownload() {
    const link = byId("review-download");
    if (link.href) URL.revokeObjectURL(link.href);
    const accepted = this.rows.filter((row) => row.accepted).sort((a, b) => a.row - b.row);
    link.hidden = !accepted.length;
    const lines = accepted.map(({ text, options }) => {
      const labels = options.filter((label) => label.checked).map((label) => label.id);
      return `${JSON.stringify({ text, labels })}\n`;
    });
    link.href = URL.createObjectURL(new Blob(lines, { type: "application/x-ndjson" }));
    link.download = this.name;
  }
}
