// One text: asked about whenever it or the settings change, never twice at a time, and the newest always wins.

import { patiently, predict } from "./api.js";
import { byId } from "./element.js";
import { allProbabilities, readResult } from "./result.js";
import { count, deepest, delay, percent } from "./wording.js";

const TYPING = 250; // milliseconds without a key before a text is taken as it is
const SETTLED = 700; // milliseconds without a change before a result is said aloud

/**
 * Watches the text field. `shown(result, text)` gets every result, null without a text; `failed(error)` what went
 * wrong, null when it is over.
 */
export class TextView {
  constructor({ settings, shown, failed, announce }) {
    Object.assign(this, { settings, shown, failed, announce, taxonomy: null, model: null });
    this.field = byId("text");
    this.asked = null; // the newest question, while it is not answered
    this.busy = false;
    this.known = { text: null, rule: null, probabilities: null };
    this.field.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.ask(), TYPING);
      this.note();
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      clearTimeout(this.typing);
      this.ask();
    });
  }

  get text() {
    return this.field.value.trim() ? this.field.value : "";
  }

  /** Start to work, once model and tree are known. */
  begin(model, taxonomy) {
    Object.assign(this, { model, taxonomy });
    this.note();
    this.ask();
  }

  /** Ask about the text as it is now. While a question is on its way, only the newest of those after it is kept. */
  async ask() {
    if (!this.taxonomy) return;
    this.asked = { text: this.text, ...this.settings() };
    this.stopWaiting?.abort();
    if (this.busy) return;
    this.busy = true;
    while (this.asked !== null) {
      const question = this.asked;
      this.asked = null;
      try {
        await this.answer(question);
      } catch (error) {
        if (error.name !== "AbortError") this.failed(error);
      }
    }
    this.busy = false;
  }

  async answer(question) {
    if (!question.text) {
      this.failed(null);
      byId("summary").textContent = `${count(this.taxonomy.size, "label")}, none lit: there is no text yet.`;
      this.shown(null, "");
      return;
    }
    const same = this.known.text === question.text && this.known.rule === question.rule;
    const affordable = this.taxonomy.size <= (this.model.limits?.probabilities ?? Infinity);
    const body = same || !affordable ? question : { ...question, probabilities: true };
    this.stopWaiting = new AbortController(); // a newer question need not wait until an older one has its turn
    const { signal } = this.stopWaiting;
    const waiting = (seconds, error) => (byId("summary").textContent = delay(seconds, error));
    const answer = await patiently(() => predict(body), { signal, waiting });
    const [prediction] = answer.predictions;
    if (prediction.error) {
      this.failed(new Error(prediction.error.message));
      return;
    }
    if (!same) {
      const probabilities = allProbabilities(this.taxonomy, prediction.probabilities);
      this.known = { text: question.text, rule: question.rule, probabilities };
    }
    const result = readResult(this.taxonomy, prediction, this.known.probabilities);
    this.failed(null);
    this.note(prediction.truncated);
    this.summarise(prediction);
    this.shown(result, question.text);
  }

  summarise({ labels, abstained = [], note }) {
    const ends = deepest(labels);
    const unsure = abstained.length ? "No label is sure enough" : "No label is probable enough. The nearest are:";
    const none = note ? `No label: ${note}` : unsure;
    const some = labels.length ? `${count(labels.length, "label")} on ${count(ends.length, "path")}` : none;
    const words = abstained.length ? `${some}, ${abstained.length} abstained` : some;
    byId("summary").textContent = words;
    clearTimeout(this.speaking);
    const paths = ends.map((label) => `${label.path.join(", ")}, ${percent(label.probability)}`);
    this.speaking = setTimeout(() => this.announce([words, ...paths].join("; ")), SETTLED);
  }

  /** Say below the text how much of it counts. */
  note(truncated = false) {
    const most = this.model?.limits?.characters_per_text ?? Infinity;
    const length = this.field.value.length > most / 2 ? [...this.field.value].length : 0;
    let sentence = "Labels appear as you type.";
    const read = count(this.model?.max_length ?? 0, "token");
    if (truncated) sentence = `Longer than the model reads: only the first ${read} count.`;
    if (length > most * 0.8) sentence = `${length.toLocaleString("en")} of at most ${count(most, "character")}.`;
    byId("text-note").textContent = sentence;
    byId("text-note").classList.toggle("problem", length > most);
  }
}
