// One text with its marked words, the question, the options and the answer.

import { byId, element, percent } from "../page/common.js";

/** Shows a draft; `choose(label, adding)` and `remove(label)` are called for clicks. */
export class TaskView {
  constructor({ choose, remove }) {
    Object.assign(this, { choose, remove, taxonomy: null, draft: null, options: [], words: null });
    const list = byId("options");
    const optionAt = (event) => this.options[event.target.closest("[data-place]")?.dataset.place];
    list.addEventListener("click", (event) => {
      const option = optionAt(event);
      if (option) this.choose(option.label, event.shiftKey || event.ctrlKey || event.metaKey);
    });
    for (const [type, leaves] of [["pointerover", false], ["focusin", false], ["pointerleave", true]]) {
      list.addEventListener(type, (event) => this.mark(leaves ? undefined : optionAt(event)));
    }
    byId("chosen").addEventListener("click", (event) => {
      const chip = event.target.closest("[data-label]");
      if (chip) this.remove(Number(chip.dataset.label));
    });
  }

  /** Show a new text. */
  begin(draft, options) {
    Object.assign(this, { draft, options, words: null });
    byId("document").scrollTop = 0;
    byId("hint").textContent = this.hint();
    byId("options").replaceChildren(...options.map((option, place) => element("li", {}, this.button(option, place))));
    this.show();
  }

  hint() {
    const { hidden, others = [] } = this.draft.task;
    if (others.length) {
      const said = others.map(({ user, kind, labels, note }) => {
        const names = labels.map((id) => this.taxonomy.names[this.taxonomy.places.get(id)]).join(", ");
        return `${user}: ${kind === "labels" ? names : "belongs nowhere"}${note ? ` (${note})` : ""}`;
      });
      return `Different answers. ${said.join("; ")}.`;
    }
    if (hidden) return "In the random slice for dev and test: suggestions are hidden, so that they do not lead you.";
    return this.options.length ? "" : "There are no suggestions yet.";
  }

  button({ label, probability, people }, place) {
    const untrained = this.draft.task.model === null; // its probabilities mean nothing yet
    const share = probability === undefined ? people.join(", ") : untrained ? "" : percent(probability);
    const bar = element("span", { class: "bar", "aria-hidden": "true" }, element("i", { class: "fill" }));
    bar.hidden = untrained;
    bar.style.setProperty("--probability", probability ?? 0);
    return element(
      "button",
      { type: "button", class: "option", "data-place": place, "aria-keyshortcuts": place + 1 },
      element("kbd", { "aria-hidden": "true" }, String(place + 1)),
      this.pathOf(label),
      bar,
      element("span", { class: "percent" }, share),
    );
  }

  /** Return an element with the names of a path, the last one emphasised. */
  pathOf(label) {
    const { names } = this.taxonomy;
    const above = this.taxonomy.path(label).slice(0, -1).map((node) => `${names[node]} › `);
    const parts = [element("bdi", { class: "quiet" }, above.join("")), element("bdi", {}, names[label])];
    return element("span", { class: "path" }, ...parts);
  }

  /** Show the state of the draft. */
  show() {
    const { chosen, question } = this.draft;
    byId("question").hidden = question === -1;
    if (question !== -1) byId("question-text").replaceChildren(this.pathOf(question), "?");
    byId("note-open").querySelector("kbd").textContent = question === -1 ? "n" : "⇧n";
    this.options.forEach(({ label }, place) => {
      const button = byId("options").querySelector(`[data-place="${place}"]`);
      button.setAttribute("aria-pressed", String(chosen.includes(label)));
      button.classList.toggle("refused", this.draft.isRefused(label));
    });
    byId("chosen").replaceChildren(...chosen.map((label) => this.chip(label)));
    byId("none-chosen").hidden = chosen.length > 0;
    byId("none-chosen").textContent = this.options.length
      ? "Choose a suggested path, or find one among the labels."
      : "Find a path among the labels.";
    byId("accept").disabled = byId("parent").disabled = !chosen.length;
    this.mark();
  }

  chip(label) {
    const stops = this.taxonomy.children(label).length > 0;
    const words = stops ? element("span", { class: "quiet" }, " stop here") : null;
    const named = { "data-label": label, "aria-label": `Remove ${this.taxonomy.names[label]}` };
    const button = element("button", { type: "button", class: "plain", ...named }, "×");
    return element("li", {}, element("span", {}, this.pathOf(label), words ?? ""), button);
  }

  /** Mark the words that carry an option: by default the one at or below the label chosen last, or else the first. */
  mark(option) {
    const label = this.draft.chosen.at(-1);
    const below = (one) => label === undefined || this.taxonomy.path(one.label).includes(label);
    const shown = option ?? this.options.find(below);
    const words = (shown?.words ?? []).filter(Boolean);
    if (this.words !== null && words.join("\n") === this.words) return;
    this.words = words.join("\n");
    byId("document").replaceChildren(...marked(this.draft.task.text, words));
  }
}

/** Return the parts of a text, with each occurrence of the words in a mark. */
function marked(text, words) {
  if (!words.length) return [text];
  const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\\/-]/g, "\\$&"));
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(${escaped.join("|")})(?![\\p{L}\\p{N}])`, "giu");
  return text.split(pattern).map((part, place) => (place % 2 ? element("mark", { class: "for" }, part) : part));
}
