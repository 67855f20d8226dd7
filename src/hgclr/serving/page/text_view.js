// One text: its labels, updated with every change of text or settings, and the words that carry a label.

import { explain, predict, withRetries } from "./api.js";
import { byId, count, deepest, delay, element, percent, sentence } from "./common.js";

const LIKELY = 60; // labels that are drawn above the slider
const UNLIKELY = 0.02; // less probable labels are not drawn: they would overlap

/** Return the probability of every label from the service's map by id; an empty list without a map. */
function allProbabilities(taxonomy, map) {
  return map ? taxonomy.ids.map((id) => map[id]) : [];
}

/** Return a prediction by label index; see `rowsToShow`. */
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

const TYPING = 250; // milliseconds without a key before the text is sent
const SETTLED = 700; // milliseconds without a change before screen readers get the result

/**
 * Labels the text field. `shown(result, text)` gets every result, null without a text; `failed(error)` gets every
 * error, null after a success.
 */
export class TextView {
  constructor({ settings, shown, failed, announce }) {
    Object.assign(this, { settings, shown, failed, announce, taxonomy: null, model: null });
    this.field = byId("text");
    this.asked = null; // the newest request that is not sent yet
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

  /** Start to label, once the model and its label tree are loaded. */
  begin(model, taxonomy) {
    Object.assign(this, { model, taxonomy });
    this.note();
    this.ask();
  }

  /** Label the current text. While one request is running, only the newest of the later ones is kept. */
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
      byId("summary").textContent = `${count(this.taxonomy.size, "label")}, none predicted: there is no text yet.`;
      byId("doubt").textContent = "";
      this.shown(null, "");
      return;
    }
    const same = this.known.text === question.text && this.known.rule === question.rule;
    const affordable = this.taxonomy.size <= (this.model.limits?.probabilities ?? Infinity);
    const body = same || !affordable ? question : { ...question, probabilities: true };
    this.stopWaiting = new AbortController(); // a newer request ends the pause of an older one
    const { signal } = this.stopWaiting;
    const waiting = (seconds, error) => (byId("summary").textContent = delay(seconds, error));
    const answer = await withRetries(() => predict(body), { signal, waiting });
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
    const unsure = abstained.length ? "No label is sure enough" : "No label is probable enough. The most probable are:";
    const none = note ? `No label: ${note}` : unsure;
    const some = labels.length ? `${count(labels.length, "label")} on ${count(ends.length, "path")}` : none;
    const words = abstained.length ? `${some}, ${abstained.length} abstained` : some;
    byId("summary").textContent = words;
    byId("doubt").textContent = labels.length && note ? sentence(note) : "";
    clearTimeout(this.speaking);
    const paths = ends.map((label) => `${label.path.join(", ")}, ${percent(label.probability)}`);
    const said = [words, ...paths, byId("doubt").textContent].filter(Boolean);
    this.speaking = setTimeout(() => this.announce(said.join("; ")), SETTLED);
  }

  /** Show below the text whether it is too long. */
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

const PATIENCE = 200; // milliseconds before the panel shows that it is waiting
const FAINT = 0.1; // words below this share of the strongest relevance are not marked

const METHODS = { integrated: "integrated gradients", occlusion: "leaving each word out" };

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

  /** Request and mark the words that carry a label of a text. Returns the announcement for screen readers. */
  async show(text, id, name) {
    this.request?.abort();
    const { signal } = (this.request = new AbortController());
    this.panel.hidden = false;
    byId("why-title").replaceChildren("Why ", element("bdi", {}, name), "?");
    const timer = setTimeout(() => this.say("Computing the relevance of each word…"), PATIENCE);
    this.panel.setAttribute("aria-busy", "true");
    try {
      const answer = await withRetries(() => explain({ text, labels: [id] }, { signal }), { signal });
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

  /** Mark the words of a text by relevance; return those that carry the label. */
  mark(text, { words }, { relevance, kept }) {
    const characters = [...text]; // the service counts code points
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
      // The square root keeps weaker words visible.
      mark.style.setProperty("--weight", Math.sqrt(Math.abs(weight)).toFixed(3));
      parts.push(mark);
    });
    parts.push(element("span", { class: "quiet" }, characters.slice(end).join(""))); // beyond the model's length
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

/** Return how much the underlined words matter for the label. */
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
