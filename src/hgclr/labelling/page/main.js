// Connects the parts of the page: keys and buttons, the next text, answers.

import { ServiceError } from "../page/api.js";
import { byId, duration, percent, sentence } from "../page/common.js";
import { Taxonomy } from "../page/taxonomy.js";
import { SearchBox, TreeView } from "../page/tree_view.js";
import { Draft, optionsOf } from "./answer.js";
import { showProgress } from "./progress_view.js";
import { Server, begin, store, stored } from "./server.js";
import { TaskView } from "./task_view.js";

const POLL = 2000; // milliseconds between two requests for the progress of a training
const SPOKEN = 600; // characters of a text that a screen reader gets

const announce = (text) => (byId("live").textContent = text);
const modes = { "yes-no": false, several: false, disagreements: false };
let taxonomy = null;
let draft = null; // the answer to the shown text; null while there is no text
let busy = true; // while a text or an answer is under way, keys are ignored
let adding = false; // whether Shift was held when a search ended
let polling = null;

const server = new Server((error, seconds) => {
  notify(error && `${sentence(error.message)} ${kept()}Trying again in ${duration(seconds)}.`);
});
const view = new TaskView({ choose, remove: (label) => change(() => draft.remove(label)) });
const tree = new TreeView(byId("tree"), (label) => {
  tree.unfolding.open(label);
  choose(label);
});
const search = new SearchBox(found, "find", "found-labels", (label) => tree.point(label));
tree.words = { idle: "", predicted: ", chosen", abstained: "", absent: "" };

const ACTIONS = {
  accept,
  parent: shorten,
  nowhere: () => send(draft.finished("none")),
  skip: () => send(draft.finished("skip")),
  yes: () => send(draft.confirmed()),
  no: refuse,
  "note-open": openNote,
  undo,
  "yes-no": () => toggle("yes-no"),
  several: () => toggle("several"),
  disagreements: () => toggle("disagreements"),
  find: () => byId("find").focus(),
  "keys-open": () => byId("keys").showModal(),
};
const KEYS = {
  Enter: "accept", Backspace: "parent", x: "nowhere", s: "skip", u: "undo", n: "note-open", N: "note-open",
  y: "yes", q: "yes-no", m: "several", d: "disagreements", "/": "find", "?": "keys-open",
};
const WITHOUT_TEXT = new Set(["undo", "yes-no", "several", "disagreements", "find", "keys-open"]);

/** Perform an action, if the page is ready for it. */
function act(name) {
  const ready = !busy && (draft !== null || WITHOUT_TEXT.has(name));
  const asked = (name !== "yes" && name !== "no") || draft?.question !== -1;
  if (name === "keys-open" || (ready && asked)) ACTIONS[name]();
}

for (const name of Object.keys(ACTIONS)) if (name !== "find") byId(name).addEventListener("click", () => act(name));
for (const effort of ["head", "full"]) byId(`train-${effort}`).addEventListener("click", () => train(effort));
byId("keys-close").addEventListener("click", () => byId("keys").close());
byId("notice-retry").addEventListener("click", () => (server.retry ? server.retry() : location.reload()));
addEventListener("online", () => server.retry?.());
byId("note").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" && event.key !== "Escape") return;
  event.preventDefault();
  event.stopPropagation();
  byId("document").focus();
});
byId("find").addEventListener("keydown", (event) => {
  adding = event.shiftKey;
  if (event.key !== "Escape") return; // which leaves the search at once; the page's own key then returns to the text
  byId("find").value = "";
  search.close();
}, true);
byId("found-labels").addEventListener("click", (event) => (adding = event.shiftKey), true);
// Enter on what is chosen accepts; the first Enter on an option or in the tree chooses it.
document.addEventListener("keydown", (event) => {
  const chosen = ".option[aria-pressed=true], [data-state=predicted]";
  if (event.key !== "Enter" || event.repeat || !event.target.closest?.(chosen)) return;
  event.preventDefault();
  event.stopPropagation();
  act("accept");
}, true);
document.addEventListener("keydown", pressed);
start();

function pressed(event) {
  const { target, key } = event;
  if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
  if (byId("keys").open || target.isContentEditable) return;
  if (key === "Escape") {
    byId("document").focus();
    tree.setChosen(null);
    return;
  }
  if (target.matches("input")) return;
  if (key === "Enter" && target.closest("button, a, summary")) return; // it is a click
  const digit = /^(?:Digit|Numpad)([1-5])$/.exec(event.code); // by place, because Shift changes the character
  const name = key === "n" && draft !== null && draft.question !== -1 ? "no" : KEYS[key];
  if (digit) {
    const option = view.options[digit[1] - 1];
    if (option && draft !== null && !busy) choose(option.label, event.shiftKey);
  } else if (name) act(name);
  else return;
  event.preventDefault();
}

/** Load the label tree, send what an earlier visit has left, and show the first text. */
async function start() {
  begin();
  try {
    const { progress, labels } = await server.begin();
    taxonomy = new Taxonomy(labels);
    view.taxonomy = taxonomy;
    tree.setTaxonomy(taxonomy);
    search.setTaxonomy(taxonomy);
    for (const name of ["yes-no", "several"]) setMode(name, stored(`hgclr-label-${name}`) === "true");
    arrived(progress);
    const left = server.kept();
    if (left) arrived(await server.answer(left));
    await next();
  } catch (error) {
    failed(error);
  }
}

/** Get and show the next text. */
async function next() {
  byId("work").setAttribute("aria-busy", "true");
  const task = await server.next(modes.disagreements ? "disagreements" : "all", modes["yes-no"]);
  show(task);
  if (task === null) {
    const none = modes.disagreements ? "There are no disagreements." : "There is no text left.";
    byId("document").textContent = none;
    announce(none);
  }
}

/** Show a task; null shows an empty page. */
function show(task) {
  busy = false;
  byId("work").removeAttribute("aria-busy");
  byId("note").value = "";
  byId("note-field").hidden = true;
  byId("work").classList.toggle("empty", task === null);
  draft = task && new Draft(taxonomy, task);
  if (task === null) return;
  const options = optionsOf(task, taxonomy);
  view.begin(draft, options);
  tree.refold();
  tree.unfolding.open(-1);
  tree.chosen = null;
  showTree();
  byId("document").focus();
  scrollTo({ top: 0 });
  const paths = options.map(({ label, probability }, place) => {
    return `${place + 1}: ${taxonomy.names[label]}${probability === undefined ? "" : `, ${percent(probability)}`}`;
  });
  const asked = draft.question === -1 ? "" : `${spoken(draft.question)}?`;
  announce([task.text.slice(0, SPOKEN), byId("hint").textContent, asked, ...paths].filter(Boolean).join(". "));
}

/** Show in the tree what is chosen or, before that, what is suggested. */
function showTree() {
  const probabilities = [];
  for (const { label, probability } of view.options) if (probability !== undefined) probabilities[label] = probability;
  const predicted = new Map(draft.chosen.map((label) => [label, probabilities[label]]));
  tree.show({ predicted, abstained: new Map(), probabilities });
}

function spoken(label) {
  return taxonomy.path(label).map((node) => taxonomy.names[node]).join(", ");
}

/** Change the draft, and show it. */
function change(alter) {
  if (busy || draft === null) return;
  alter();
  view.show();
  showTree();
  byId("accept").scrollIntoView({ block: "nearest" }); // on a narrow screen the tree is far below
  announce(draft.chosen.length ? `Answer: ${draft.chosen.map(spoken).join("; ")}` : "No path is chosen.");
}

function choose(label, several = false) {
  change(() => draft.choose(label, several || modes.several));
}

/** Choose the label that a search has found. */
function found(label) {
  tree.setChosen(null);
  byId("document").focus();
  choose(label, adding);
  tree.point(label);
}

function shorten() {
  if (draft.chosen.length) change(() => draft.shorten());
  else announce("Choose a path first.");
}

function accept() {
  if (draft.chosen.length) send(draft.finished("labels"));
  else announce("Choose a path first.");
}

function refuse() {
  draft.refuse();
  view.show();
  announce(draft.question === -1 ? "Choose another path." : `${spoken(draft.question)}?`);
}

function openNote() {
  byId("note-field").hidden = false;
  byId("note").focus();
}

/** Send an answer, then get the next text. */
async function send(answer) {
  await whileBusy(async () => {
    const progress = await server.answer({ ...answer, note: byId("note").value.trim() });
    draft = null; // it is stored
    arrived(progress);
    await next();
  });
}

async function undo() {
  await whileBusy(async () => {
    const task = await server.undo();
    if (task === null) announce("There is nothing to undo.");
    else {
      show(task);
      arrived(await server.progress());
    }
  });
}

async function train(effort) {
  try {
    arrived(await server.train(effort));
  } catch (error) {
    failed(error);
  }
}

function toggle(name) {
  setMode(name, !modes[name]);
  announce(`${byId(name).childNodes[1].textContent.trim()} ${modes[name] ? "on" : "off"}.`);
  if (name !== "several") whileBusy(next);
}

function setMode(name, on) {
  modes[name] = on;
  byId(name).setAttribute("aria-pressed", String(on));
  if (name !== "disagreements") store(`hgclr-label-${name}`, String(on));
}

/** Do work during which keys are ignored; after an error the shown text can be answered again. */
async function whileBusy(work) {
  busy = true;
  byId("work").setAttribute("aria-busy", "true");
  try {
    await work();
    notify(null);
  } catch (error) {
    failed(error);
  } finally {
    busy = false;
    byId("work").removeAttribute("aria-busy");
  }
}

/** Show a new progress, and ask again while the server trains. */
function arrived(progress) {
  showProgress(progress, taxonomy);
  clearTimeout(polling);
  if (!progress.training) return;
  polling = setTimeout(() => server.progress().then(arrived, () => arrived(progress)), POLL);
}

function kept() {
  return server.box !== null && server.kept() ? "Your answer is kept in this browser. " : "";
}

function failed(error) {
  byId("work").removeAttribute("aria-busy");
  notify(sentence(error.message));
  if (!(error instanceof ServiceError)) throw error; // a fault of the page belongs in the console
}

/** Show a message above the text; null hides it. */
function notify(message) {
  byId("notice").hidden = !message;
  byId("notice-text").textContent = message ?? "";
}
