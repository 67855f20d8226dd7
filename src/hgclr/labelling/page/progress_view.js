// The progress of the sitting: numbers, learning curve, agreement, advice.

import { byId, count, element, percent, sentence } from "../page/common.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [320, 130, 40, 18]; // of the plot, and of the space for its axes
const LISTED = 200; // labels without a text

/** Show the progress that the server has sent. */
export function showProgress(progress, taxonomy) {
  const { answers, skipped, documents, labels_covered: covered, labels, curve, people } = progress;
  byId("folder").textContent = progress.folder;
  document.title = `${progress.folder} · hgclr label`;
  const names = Object.keys(people);
  const self = progress.user === "me" ? "" : `${progress.user} · `;
  byId("facts").textContent = `${self}${answers.toLocaleString("en")} of ${count(documents, "text")} answered`;
  byId("disagreements-count").textContent = progress.disagreements;
  byId("advice").textContent = sentence(progress.advice);
  const model = progress.model === null ? "no model yet" : `model ${progress.model}`;
  byId("model-state").textContent = progress.training ? "training…" : model;
  byId("train-head").disabled = byId("train-full").disabled = progress.training || !names.length;

  const numbers = [
    ["Answers", meter(answers, documents)],
    ["Labels covered", meter(covered, labels)],
  ];
  if (skipped) numbers.push(["Skipped", skipped]);
  if (progress.agreement !== null) numbers.push(["Successive models agree", percent(progress.agreement)]);
  if (names.length > 1) numbers.push(["People", names.map((name) => `${name} ${people[name]}`).join(", ")]);
  const levels = progress.people_agreement ?? [];
  if (levels.length) {
    const shown = levels.map((value) => (value === null ? "–" : value.toFixed(2)));
    numbers.push(["Kappa by level", shown.join(" · ")]);
  }
  byId("numbers").replaceChildren(
    ...numbers.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
  );

  byId("curve").hidden = !curve.length;
  if (curve.length) showCurve(curve);
  const missing = progress.labels_without_text;
  byId("without-text").hidden = !missing.length || !names.length;
  byId("without-title").textContent = `${count(missing.length, "label")} without a text`;
  const nameOf = (id) => taxonomy.names[taxonomy.places.get(id)];
  const lines = missing.slice(0, LISTED).map((id) => element("li", {}, element("bdi", {}, nameOf(id))));
  byId("without-list").replaceChildren(...lines);
}

/** Return a number of a total, with a bar. */
function meter(value, total) {
  const bar = element("span", { class: "bar", "aria-hidden": "true" }, element("i", { class: "fill" }));
  bar.style.setProperty("--probability", total ? value / total : 0);
  return element("span", { class: "meter" }, `${value.toLocaleString("en")} of ${total.toLocaleString("en")}`, bar);
}

/** Draw the learning curve with its interval. */
function showCurve(curve) {
  const [answers, score, low, high] = curve.at(-1);
  const words = `Macro-F1 ${percent(score)} (${percent(low)} to ${percent(high)}) with ${count(answers, "answer")}.`;
  byId("curve-text").textContent = words;
  const most = Math.max(...curve.map((point) => point[0]), 1);
  const x = (value) => LEFT + ((WIDTH - LEFT - 6) * value) / most;
  const y = (value) => 6 + (HEIGHT - BOTTOM - 6) * (1 - value);
  const line = (points) => points.map(([across, up]) => `${x(across).toFixed(1)},${y(up).toFixed(1)}`).join(" ");
  const band = [...curve.map(([n, , below]) => [n, below]), ...curve.map(([n, , , above]) => [n, above]).reverse()];
  const parts = [0, 0.5, 1].flatMap((value) => [
    drawn("line", { class: "grid", x1: LEFT, x2: WIDTH - 6, y1: y(value), y2: y(value) }),
    drawn("text", { x: LEFT - 5, y: y(value) + 4, "text-anchor": "end" }, `${100 * value} %`),
  ]);
  parts.push(
    drawn("polygon", { class: "interval", points: line(band) }),
    drawn("polyline", { class: "score", points: line(curve) }),
    ...curve.map(([n, value]) => drawn("circle", { class: "point", cx: x(n), cy: y(value), r: 2.5 })),
    drawn("text", { x: LEFT, y: HEIGHT - 3 }, "0"),
    drawn("text", { x: WIDTH - 6, y: HEIGHT - 3, "text-anchor": "end" }, count(most, "answer")),
  );
  const attributes = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Learning curve. ${words}` };
  byId("curve-plot").replaceChildren(drawn("svg", attributes, ...parts));
}

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
