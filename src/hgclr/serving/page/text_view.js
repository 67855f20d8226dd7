// One text: its labels, asked for whenever it or the settings change, and the words that carry one of them.

import { explain, patiently, predict } from "./api.js";
import { byId, count, deepest, delay, element, percent, sentence } from "./common.js";

const LIKELY = 60; // labels that are drawn above the slider
const UNLIKELY = 0.02; // below this they would lie on one another

/** Return the probability of every label, from the service's map of ids; an empty list where there is no such map. */
function allProbabilities(taxonomy, map) {
  return map ? taxonomy.ids.map((id) => map[id]) : [];
}

/** Return a prediction with labels as numbers; see `rowsToShow`. */
function readResult(taxonomy, prediction, probabilities) {
  const map = (labels) => new Map(labels.map((label) => [taxonomy.places.get(label.id), label.probability]));
  return {
    predicted: map(prediction.labels),
    abstained: map(prediction.abstained ?? []),
    probabilities,
    likely: likely(probabilities),
  };
}

function likely(probabilities) {
  const labels = [];
  probabilities.forEach((probability, label) => {
    if (probability >= UNLIKELY) labels.push(label);
  });
  return labels.sort((a, b) => probabilities[b] - probabilities[a]).slice(0, LIKELY);
}

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

const PATIENCE = 200; // milliseconds before it is said that one has to wait
const FAINT = 0.1; // of the strongest word: what matters less is not marked

const METHODS = { integrated: "integrated gradients", occlusion: "leaving each out" };

/** The panel that explains one label of the text; `closed()` is called when the user closes it. */
export class Why {
  constructor(closed) {
    this.panel = byId("why");
    this.request = null;
    byId("why-close").addEventListener("click", () => {
      this.close();
      closed();
    });
    this.panel.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      this.close();
      closed();
    });
  }

  close() {
    this.request?.abort();
    this.panel.hidden = true;
  }

  /** Ask for the words that carry a label of a text, and mark them. Returns what is to be said aloud. */
  async show(text, id, name) {
    this.request?.abort();
    const { signal } = (this.request = new AbortController());
    this.panel.hidden = false;
    byId("why-title").replaceChildren("Why ", element("bdi", {}, name), "?");
    const timer = setTimeout(() => this.say("Looking at every word…"), PATIENCE);
    this.panel.setAttribute("aria-busy", "true");
    try {
      const answer = await patiently(() => explain({ text, labels: [id] }, { signal }), { signal });
      const label = answer.labels.find((explained) => explained.id === id);
      const carriers = this.mark(text, answer, label);
      const note = worth(answer, label);
      byId("why-note").textContent = note;
      return `Words that carry ${name}: ${carriers.join(", ") || "none"}. ${note}`;
    } catch (error) {
      if (error.name === "AbortError") return null;
      this.say(sentence(error.message));
      return sentence(error.message);
    } finally {
      clearTimeout(timer);
      if (this.request?.signal === signal) this.panel.removeAttribute("aria-busy");
    }
  }

  /** Mark the words of a text, stronger the more they matter; return those that carry the label. */
  mark(text, { words }, { relevance, kept }) {
    const characters = [...text]; // places are counted in code points
    const strongest = Math.max(0, ...relevance.map(Math.abs));
    const carriers = new Set(kept.filter((word) => relevance[word] > 0));
    const parts = [];
    let end = 0;
    words.forEach(({ start, stop }, word) => {
      parts.push(characters.slice(end, start).join(""));
      end = stop;
      const weight = strongest ? relevance[word] / strongest : 0;
      const kind = carriers.has(word) ? "kept" : weight > 0 ? "for" : "against";
      const content = characters.slice(start, stop).join("");
      if (kind !== "kept" && Math.abs(weight) < FAINT) {
        parts.push(content);
        return;
      }
      const mark = element("mark", { class: kind }, content);
      // The root, because else only the strongest would be seen.
      mark.style.setProperty("--weight", Math.sqrt(Math.abs(weight)).toFixed(3));
      parts.push(mark);
    });
    parts.push(element("span", { class: "quiet" }, characters.slice(end).join(""))); // what the model does not read
    byId("why-words").replaceChildren(...parts);
    byId("why-legend").hidden = false;
    return [...carriers].map((word) => words[word].word);
  }

  say(note) {
    byId("why-words").replaceChildren();
    byId("why-legend").hidden = true;
    byId("why-note").textContent = note;
  }
}

/** Say what the underlined words are worth. */
function worth({ method, keep, words_not_read: unread }, label) {
  const said = [
    `With the underlined words alone the label has ${percent(label.probability_only_kept)},`,
    `with as many at random ${percent(label.probability_only_random)},`,
    `without them ${percent(label.probability_without_kept)}.`,
    `They are the strongest ${percent(keep)} of all words, by ${METHODS[method] ?? method}.`,
  ];
  if (unread) said.push(`${count(unread, "word")} at the end ${unread === 1 ? "is" : "are"} not read by the model.`);
  return said.join(" ");
}
