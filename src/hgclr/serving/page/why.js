// Why a text has a label: its words, marked by how much they speak for it.

import { explain, patiently } from "./api.js";
import { byId, element } from "./element.js";
import { count, percent, sentence } from "./wording.js";

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
