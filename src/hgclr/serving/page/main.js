// Connects the parts of the page, and loads the model.

import { getModel, getTaxonomy, withRetries } from "./api.js";
import { byId, count, percent, sentence } from "./common.js";
import { Controls } from "./controls.js";
import { FileView } from "./file_view.js";
import { ReviewView } from "./review_view.js";
import { Taxonomy } from "./taxonomy.js";
import { TextView, Why } from "./text_view.js";
import { SearchBox, TreeView } from "./tree_view.js";

const announce = (text) => (byId("live").textContent = text);
let taxonomy = null;
let shownText = ""; // the text whose labels the tree shows

const controls = new Controls(() => textView.ask());
const review = new ReviewView({ announce });
const files = new FileView({ settings: () => controls.settings(), announce, review });
const why = new Why(() => tree.focusChosen());
const tree = new TreeView(byId("tree"), choose);
const search = new SearchBox((label) => tree.find(label), "find", "found-labels");
const textView = new TextView({ settings: () => controls.settings(), shown, failed, announce });
makeTabs(document.querySelector("[role=tablist]"), (id) => {
  byId("tree-panel").hidden = id !== "text-tab";
  byId("rows-panel").hidden = id !== "file-tab";
  if (id === "file-tab") closeWhy();
});
tree.thresholdOf = (label) => controls.thresholdOf(taxonomy.ids[label]);
byId("notice-retry").addEventListener("click", () => (taxonomy ? textView.ask() : begin()));
addEventListener("online", () => (taxonomy ? textView.ask() : begin()));
// On a narrow screen the answer comes before the controls, in the order of the elements, which is also that of the Tab key.
const narrow = matchMedia("(max-width: 56rem)");
const arrange = () => document.querySelector(".found")[narrow.matches ? "append" : "prepend"](byId("controls"));
narrow.addEventListener("change", arrange);
arrange();
begin();

/** Load and show the model and its label tree. */
async function begin() {
  try {
    const waiting = () => (byId("model-facts").textContent = "The service is loading the model…");
    const [model, { labels }] = await withRetries(() => Promise.all([getModel(), getTaxonomy()]), { waiting });
    taxonomy = new Taxonomy(labels);
    introduce(model);
    controls.setModel(model.decisions ?? {});
    files.limits = model.limits ?? {};
    files.labels = taxonomy.size;
    review.setTaxonomy(taxonomy);
    tree.setTaxonomy(taxonomy);
    search.setTaxonomy(taxonomy);
    failed(null);
    textView.begin(model, taxonomy);
  } catch (error) {
    byId("model-facts").textContent = "The model could not be loaded.";
    byId("summary").textContent = "The label tree could not be loaded.";
    failed(error);
  }
}

/** Show the model and its decisions in the header. */
function introduce({ name, labels, depth, max_length, backend, decisions = {}, version }) {
  byId("model-name").textContent = name;
  document.title = `${name} · hgclr`;
  const { rule = "threshold", thresholds, calibration } = decisions;
  const facts = [count(labels, "label"), count(depth, "level"), `reads ${count(max_length, "token")}`, backend];
  facts.push(
    `rule ${rule}`,
    typeof thresholds === "number" ? `threshold ${percent(thresholds)}` : "a threshold for each label",
    ...(calibration ? [calibration.method === "leaf-softmax" ? "softmax over leaves" : "calibrated"] : []),
  );
  byId("model-facts").textContent = facts.join(" · ");
  byId("version").textContent = `hgclr ${version}`;
}

function shown(result, text) {
  if (text !== shownText) {
    shownText = text;
    closeWhy();
    tree.refold();
  }
  controls.drawRug(result);
  tree.show(result);
}

/** Mark the words that carry a label. */
async function choose(label) {
  tree.setChosen(label);
  const answer = why.show(shownText, taxonomy.ids[label], taxonomy.names[label]);
  tree.keepInSight(); // on a narrow screen the explanation covers half of it
  const said = await answer;
  if (said) announce(said);
}

function closeWhy() {
  why.close();
  tree.setChosen(null);
}

/** Show an error; null hides it. */
function failed(error) {
  byId("notice").hidden = error === null;
  if (error === null) return;
  byId("notice-text").textContent = sentence(error.message);
  byId("notice-retry").hidden = error.status >= 400 && error.status < 500; // the same request would fail again
  if (taxonomy) byId("summary").textContent = "The text could not be labelled.";
}

/** Make tabs show the panel that they control; `changed(id)` gets the id of the chosen tab. */
function makeTabs(list, changed) {
  const tabs = [...list.querySelectorAll("[role=tab]")];
  const choose = (chosen) => {
    for (const tab of tabs) {
      const selected = tab === chosen;
      tab.setAttribute("aria-selected", String(selected));
      tab.tabIndex = selected ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !selected;
    }
    changed(chosen.id);
  };
  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) choose(tab);
  });
  list.addEventListener("keydown", (event) => {
    const place = tabs.indexOf(event.target);
    const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: -1 }[event.key];
    if (next === undefined) return;
    const tab = tabs.at(next % tabs.length);
    choose(tab);
    tab.focus();
    event.preventDefault();
  });
}
