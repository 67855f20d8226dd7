// The label tree on the page: its visible rows, their states, and a search field.

import { alsoUnder, byId, element, percent, setAttributes } from "./common.js";

const STEP = 20; // labels added by each click on "more"
const NEAREST = 3; // labels shown when none is predicted
const MOST = 200; // limit on the predicted labels shown: a threshold of 0 predicts all labels

/** The labels that the user has opened, closed or searched for. */
class Unfolding {
  constructor() {
    this.more = new Map(); // label -> number of children shown besides the needed ones
    this.closed = new Set();
    this.pinned = new Set();
  }

  open(label) {
    this.closed.delete(label);
    this.more.set(label, this.more.get(label) || STEP);
  }

  close(label) {
    this.more.delete(label);
    this.closed.add(label);
  }

  showMore(label) {
    this.more.set(label, (this.more.get(label) ?? 0) + STEP);
  }

  pin(label, taxonomy) {
    this.pinned.add(label);
    for (const above of taxonomy.path(label)) this.closed.delete(above);
  }
}

/**
 * Return the rows to show, in order.
 *
 * `result` is null without a text. Otherwise `predicted` and `abstained` map labels to probabilities, and `probabilities`
 * has one for every label, or none if the model has too many labels.
 */
function rowsToShow(taxonomy, result, unfolding) {
  const needed = new Set();
  for (const seed of [...unfolding.pinned, ...(result ? lit(result) : [])]) {
    for (let label = seed; label !== -1 && !needed.has(label); label = taxonomy.parents[label]) needed.add(label);
  }
  const order = result
    ? (a, b) => (result.probabilities[b] ?? 0) - (result.probabilities[a] ?? 0) || a - b
    : () => 0; // children are sorted by name
  const rows = [];
  const walk = (parent, level) => {
    const children = taxonomy.children(parent);
    const extra = unfolding.more.get(parent) ?? (parent === -1 && !result ? STEP : 0);
    const [first, others] = [children.filter((child) => needed.has(child)), []];
    if (extra) others.push(...children.filter((child) => !needed.has(child)).sort(order).slice(0, extra));
    const shown = [...first, ...others].sort(order);
    const hidden = children.length - shown.length;
    shown.forEach((label, place) => {
      const below = taxonomy.children(label);
      const wanted = unfolding.more.has(label) || below.some((child) => needed.has(child));
      const expanded = below.length ? wanted && !unfolding.closed.has(label) : undefined;
      rows.push({ key: `l${label}`, label, level, expanded, size: shown.length + (hidden > 0), place: place + 1 });
      if (expanded) walk(label, level + 1);
    });
    if (hidden > 0) {
      rows.push({ key: `m${parent}`, parent, level, hidden, size: shown.length + 1, place: shown.length + 1 });
    }
  };
  walk(-1, 1);
  return rows;
}

/** Return the labels whose branches are shown: predicted and abstained ones, or else the most probable ones. */
function lit({ predicted, abstained, probabilities }) {
  const labels = [...predicted, ...abstained];
  if (!labels.length) return nearest(probabilities);
  if (labels.length > MOST) labels.sort(([, a], [, b]) => b - a);
  return labels.slice(0, MOST).map(([label]) => label);
}

/** Return the most probable labels. */
function nearest(probabilities) {
  const best = [];
  probabilities.forEach((probability, label) => {
    if (best.length < NEAREST || probability > probabilities[best.at(-1)]) {
      best.push(label);
      best.sort((a, b) => probabilities[b] - probabilities[a]);
      best.length = Math.min(best.length, NEAREST);
    }
  });
  return best;
}

const TYPING = 600; // milliseconds within which typed letters form one word

/** Shows a tree in a list; `choose(label)` is called when a label is clicked or Enter is pressed on it. */
export class TreeView {
  constructor(list, choose) {
    Object.assign(this, { list, choose, taxonomy: null, result: null, chosen: null, current: null });
    this.thresholdOf = () => null;
    this.words = { idle: "", predicted: ", predicted", abstained: ", abstained", absent: ", not predicted" };
    this.unfolding = new Unfolding();
    this.rows = [];
    this.items = new Map(); // key of a row -> its element
    this.typed = { text: "", time: 0 };
    list.addEventListener("click", (event) => this.clicked(event));
    list.addEventListener("keydown", (event) => this.pressed(event));
    list.addEventListener("focusin", (event) => this.setCurrent(event.target.dataset.key));
  }

  /** Show a tree without a result. */
  setTaxonomy(taxonomy) {
    this.taxonomy = taxonomy;
    this.refold();
    this.show(null);
    this.list.removeAttribute("aria-busy");
  }

  /** Discard what the user has opened, closed and searched for. */
  refold() {
    this.unfolding = new Unfolding();
  }

  /** Show a result; see `rowsToShow`. */
  show(result) {
    this.result = result;
    this.render();
  }

  /** Mark the label that is explained; null marks none. */
  setChosen(label) {
    this.chosen = label;
    this.render();
  }

  /** Scroll to the current row if it is not visible. */
  keepInSight() {
    this.items.get(this.current)?.scrollIntoView({ block: "nearest" });
  }

  /** Unmark the label that was explained, and focus it. */
  focusChosen() {
    const key = `l${this.chosen}`;
    this.setChosen(null);
    this.focus(key);
  }

  /** Show and mark a label anywhere in the tree, without the focus. */
  point(label) {
    this.unfolding.pin(label, this.taxonomy);
    this.setChosen(label);
    this.items.get(`l${label}`).scrollIntoView({ block: "nearest" });
  }

  /** Show and focus a label anywhere in the tree. */
  find(label) {
    this.unfolding.pin(label, this.taxonomy);
    this.render();
    this.focus(`l${label}`);
  }

  render() {
    if (!this.taxonomy) return;
    this.rows = rowsToShow(this.taxonomy, this.result, this.unfolding);
    const focused = this.list.contains(document.activeElement);
    const keys = new Set(this.rows.map((row) => row.key));
    if (!keys.has(this.current)) this.current = this.nearestKept(keys);
    for (const [key, item] of this.items) {
      if (keys.has(key)) continue;
      item.remove();
      this.items.delete(key);
    }
    let before = this.list.firstElementChild;
    for (const row of this.rows) {
      const item = this.items.get(row.key) ?? this.makeItem(row);
      this.update(item, row);
      if (item === before) before = before.nextElementSibling;
      else this.list.insertBefore(item, before);
    }
    if (focused && this.current && document.activeElement !== this.items.get(this.current)) this.focus(this.current);
  }

  /** Return the key of the row that becomes current when the current one is removed. */
  nearestKept(keys) {
    if (this.current?.startsWith("l")) {
      const path = this.taxonomy.path(Number(this.current.slice(1)));
      for (const label of path.reverse()) if (keys.has(`l${label}`)) return `l${label}`;
    }
    return this.rows[0]?.key ?? null;
  }

  makeItem(row) {
    const item = element("li", { role: "treeitem", "data-key": row.key });
    if (row.parent === undefined) {
      const name = this.taxonomy.names[row.label];
      item.append(
        element("span", { class: "fold", "data-fold": "" }),
        element("span", { class: "light" }),
        element("bdi", { class: "name" }, name),
        element("span", { class: "abstained" }, "abstained"),
        element("span", { class: "bar" }, element("i", { class: "fill" }), element("i", { class: "tick" })),
        element("span", { class: "percent" }),
      );
      const id = this.taxonomy.ids[row.label];
      if (id !== name) item.title = id;
      item.append(...this.taxonomy.placesOf(row.label).slice(1).map(alsoUnder));
    } else {
      item.classList.add("more");
    }
    this.items.set(row.key, item);
    return item;
  }

  update(item, row) {
    item.style.setProperty("--level", row.level);
    setAttributes(item, {
      "aria-level": row.level,
      "aria-setsize": row.size,
      "aria-posinset": row.place,
      tabindex: row.key === this.current ? "0" : "-1",
    });
    if (row.parent !== undefined) {
      const above = row.parent === -1 ? "" : ` in ${this.taxonomy.names[row.parent]}`;
      item.textContent = `${row.hidden} more`;
      item.setAttribute("aria-label", `${row.hidden} more labels${above}`);
      return;
    }
    const { label } = row;
    const [state, probability] = this.stateOf(label);
    const threshold = this.thresholdOf(label);
    item.dataset.state = state;
    item.style.setProperty("--probability", probability ?? 0);
    item.style.setProperty("--threshold", threshold ?? 0);
    item.classList.toggle("ticked", this.result !== null && threshold !== null);
    item.querySelector(".percent").textContent = probability === undefined ? "" : percent(probability);
    const others = this.taxonomy.placesOf(label).slice(1).map((place) => `, also under ${place.join(", ")}`);
    setAttributes(item, {
      "aria-expanded": row.expanded === undefined ? null : String(row.expanded),
      "aria-selected": String(label === this.chosen),
      "aria-label": this.taxonomy.names[label] + (probability === undefined ? "" : `, ${percent(probability)}`) + this.words[state] + others.join(""),
    });
  }

  /** Return the state of a label, and its probability, undefined if it is unknown. */
  stateOf(label) {
    if (!this.result) return ["idle", undefined];
    const { predicted, abstained, probabilities } = this.result;
    if (predicted.has(label)) return ["predicted", predicted.get(label)];
    return abstained.has(label) ? ["abstained", abstained.get(label)] : ["absent", probabilities[label]];
  }

  clicked(event) {
    const item = event.target.closest("[role=treeitem]");
    if (!item) return;
    const row = this.rowOf(item.dataset.key);
    this.focus(row.key);
    if (event.target.dataset.fold !== undefined && row.expanded !== undefined) this.toggle(row);
    else this.act(row);
  }

  /** Handle Enter or a click: explain a label, or show more labels. */
  act(row) {
    if (row.parent !== undefined) {
      const before = new Set(this.rows.map((shown) => shown.key));
      this.unfolding.showMore(row.parent);
      this.render();
      this.focus(this.rows.find((shown) => !before.has(shown.key))?.key ?? row.key);
    } else if (this.result) {
      this.choose(row.label);
    } else if (row.expanded !== undefined) {
      this.toggle(row);
    }
  }

  toggle(row) {
    if (row.expanded) this.unfolding.close(row.label);
    else this.unfolding.open(row.label);
    this.render();
  }

  pressed(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const place = this.rows.findIndex((row) => row.key === this.current);
    if (place === -1) return;
    const row = this.rows[place];
    const moves = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: this.rows.length - 1 };
    if (event.key in moves) this.focus(this.rows[moves[event.key]]?.key);
    else if (event.key === "Enter" || event.key === " ") this.act(row);
    else if (event.key === "ArrowRight" && row.expanded === false) this.toggle(row);
    else if (event.key === "ArrowRight" && row.expanded) this.focus(this.rows[place + 1]?.key);
    else if (event.key === "ArrowLeft" && row.expanded) this.toggle(row);
    else if (event.key === "ArrowLeft") this.focus(`l${row.parent ?? this.taxonomy.parents[row.label]}`);
    else if (event.key.length === 1) this.typeAhead(event.key, place);
    else return;
    event.preventDefault();
  }

  /** Focus the next label that begins with the typed letters. */
  typeAhead(letter, place) {
    const now = performance.now();
    this.typed = { text: now - this.typed.time < TYPING ? this.typed.text + letter : letter, time: now };
    const start = this.typed.text.toLowerCase();
    const from = start.length > 1 ? place : place + 1; // a first letter moves to another row
    const turned = [...this.rows.slice(from), ...this.rows.slice(0, from)];
    const named = turned.find((row) => this.taxonomy.names[row.label]?.toLowerCase().startsWith(start));
    if (named) this.focus(named.key);
  }

  rowOf(key) {
    return this.rows.find((row) => row.key === key);
  }

  focus(key) {
    const item = this.items.get(key);
    if (!item) return;
    this.setCurrent(key);
    item.focus();
  }

  /** Make a row the only one that the Tab key reaches. */
  setCurrent(key) {
    if (!key || key === this.current) return;
    this.items.get(this.current)?.setAttribute("tabindex", "-1");
    this.current = key;
    this.items.get(key)?.setAttribute("tabindex", "0");
  }
}

const FOUND = 12; // limit on the labels that a search shows

/** The search field: `found(label)` gets the chosen label, `moved(label)` the one that Enter would choose. */
export class SearchBox {
  constructor(found, input, list, moved = () => {}) {
    Object.assign(this, { found, moved, taxonomy: null, labels: [], active: -1 });
    Object.assign(this, { input: byId(input), list: byId(list) });
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("focus", () => this.search());
    this.input.addEventListener("blur", () => this.close());
    this.input.addEventListener("keydown", (event) => this.pressed(event));
    this.list.addEventListener("pointerdown", (event) => event.preventDefault()); // the field keeps the focus
    this.list.addEventListener("click", (event) => {
      const option = event.target.closest("[data-place]");
      if (option) this.pick(Number(option.dataset.place));
    });
  }

  setTaxonomy(taxonomy) {
    this.taxonomy = taxonomy;
    this.input.disabled = false;
  }

  search() {
    const query = this.input.value.trim();
    this.labels = this.taxonomy.search(query, FOUND);
    this.list.replaceChildren(...this.labels.map((found, place) => this.option(found, place)));
    if (query && !this.labels.length) {
      this.list.append(element("li", { role: "option", "aria-disabled": "true" }, "No label matches"));
    }
    this.list.hidden = !query;
    this.input.setAttribute("aria-expanded", String(Boolean(query)));
    this.activate(this.labels.length ? 0 : -1);
  }

  option({ label, text }, place) {
    const [above, ...others] = this.taxonomy.placesOf(label);
    const name = this.taxonomy.names[label];
    const path = [...above, name].join(" › ");
    return element(
      "li",
      { role: "option", id: `${this.list.id}-${place}`, "data-place": place },
      element("bdi", { class: "name" }, name),
      text === name || text === path ? null : element("bdi", { class: "quiet clamp" }, text),
      above.length ? element("bdi", { class: "quiet" }, above.join(" › ")) : null,
      ...others.map(alsoUnder),
    );
  }

  activate(place) {
    this.active = place;
    [...this.list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === place)));
    if (place < 0) this.input.removeAttribute("aria-activedescendant");
    else this.input.setAttribute("aria-activedescendant", `${this.list.id}-${place}`);
    this.list.children[place]?.scrollIntoView({ block: "nearest" });
    if (place >= 0) this.moved(this.labels[place].label);
  }

  pressed(event) {
    const last = this.labels.length - 1;
    if (event.key.startsWith("Arrow") && last < 0) return;
    if (event.key === "ArrowDown") this.activate(this.active < last ? this.active + 1 : 0);
    else if (event.key === "ArrowUp") this.activate(this.active > 0 ? this.active - 1 : last);
    else if (event.key === "Enter" && this.active >= 0) this.pick(this.active);
    else if (event.key === "Escape" && !this.list.hidden) this.close();
    else return;
    event.preventDefault();
  }

  pick(place) {
    const { label } = this.labels[place];
    this.input.value = "";
    this.close();
    this.found(label);
  }

  close() {
    this.list.hidden = true;
    this.labels = [];
    this.activate(-1);
    this.input.setAttribute("aria-expanded", "false");
  }
}
