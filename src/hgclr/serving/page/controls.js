// The form with the decoding rule, the number of paths, the threshold and abstaining; the model has the defaults.

import { byId, element, percent } from "./common.js";

const RULES = new Map([
  ["threshold", "Every label above its threshold, even without its parent."],
  ["closure", "Every label above its threshold, and all its ancestors."],
  ["drop-orphans", "Every label that is above its threshold, as are all its ancestors."],
  ["best-path", "The most probable path; a higher threshold makes it shorter."],
  ["top-k-paths", "The k most probable paths; a higher threshold makes them shorter."],
]);

/** The form with the settings; `changed()` is called after every change. */
export class Controls {
  constructor(changed) {
    this.decisions = {};
    this.own = {}; // settings that the user has changed, in the form of a request
    this.rule = byId("rule");
    this.rule.append(
      ...[...RULES].map(([name, line]) => {
        const parts = [element("b", {}, name), element("i", {}, " — "), element("span", {}, line)];
        return element("option", { value: name }, ...parts);
      }),
    );
    const set = (name, value) => {
      this.own[name] = value;
      this.show();
      changed();
    };
    this.rule.addEventListener("change", () => set("rule", this.rule.value));
    byId("paths").addEventListener("input", (event) => {
      if (event.target.validity.valid && event.target.value) set("paths", event.target.valueAsNumber);
    });
    byId("threshold").addEventListener("input", (event) => set("threshold", event.target.valueAsNumber));
    byId("abstain_below").addEventListener("input", (event) => set("abstain_below", event.target.valueAsNumber));
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    byId("reset").addEventListener("click", () => {
      this.own = {};
      this.show();
      changed();
    });
    this.show();
  }

  /** Set the model's decisions, the defaults. */
  setModel(decisions) {
    this.decisions = decisions;
    this.show();
  }

  /** Return the changed settings as part of a request. */
  settings() {
    const { paths, ...others } = this.own;
    return paths !== undefined && this.chosenRule === "top-k-paths" ? { ...others, paths } : others;
  }

  get chosenRule() {
    return this.own.rule ?? this.decisions.rule ?? "threshold";
  }

  /** Return the threshold of a label id, or null if it is unknown. */
  thresholdOf(id) {
    const thresholds = this.own.threshold ?? this.decisions.thresholds ?? null;
    return thresholds !== null && typeof thresholds === "object" ? (thresholds[id] ?? null) : thresholds;
  }

  /** Draw a dot above the slider for each of the most probable labels. */
  drawRug(result) {
    byId("rug").replaceChildren(
      ...(result?.likely ?? []).map((label) => {
        const dot = element("i", { class: result.predicted.has(label) ? "lit" : null });
        dot.style.setProperty("--probability", result.probabilities[label]);
        return dot;
      }),
    );
  }

  show() {
    const { thresholds = 0.5, paths = 1, abstain_below } = this.decisions;
    this.rule.value = this.chosenRule;
    byId("rule-line").textContent = RULES.get(this.chosenRule) ?? "";
    byId("paths-field").hidden = this.chosenRule !== "top-k-paths";
    byId("paths").value = this.own.paths ?? paths;
    const spread = typeof thresholds === "object" ? Object.values(thresholds).sort((a, b) => a - b) : [thresholds];
    const own = this.own.threshold;
    const alike = own !== undefined || spread[0] === spread.at(-1);
    const range = `${percent(spread[0])} to ${percent(spread.at(-1))}, by label`;
    slide("threshold", own ?? spread[Math.floor(spread.length / 2)], alike ? null : range);
    const limit = this.own.abstain_below ?? abstain_below ?? 0;
    slide("abstain_below", limit, limit ? null : "off");
    byId("reset").disabled = !Object.keys(this.own).length;
  }
}

/** Move a slider to a value, and show the value or, where given, other words. */
function slide(id, value, words) {
  const slider = byId(id);
  slider.value = value;
  const shown = words ?? percent(value);
  slider.setAttribute("aria-valuetext", shown);
  byId(`${id}-value`).textContent = shown;
}
