// The label tree on the page: which rows are shown, how they light up, and a field that finds a label.

import { byId, element, percent, setAttributes } from "./common.js";

const STEP = 20; // labels that are added when one asks for more
const NEAREST = 3; // labels that are shown when none is predicted
const MOST = 200; // predicted labels that are shown at once, the most probable ones: at a threshold of 0 all are predicted

/** What was opened and closed by hand, and what was looked for. */
class Unfolding {
  constructor() {
    this.more = new Map(); // label -> how many of its children are shown beside those that must be
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
 * `result` is null as long as there is no text; else `predicted` and `abstained` are maps from labels to probabilities and
 * `probabilities` holds one for every label, or none where there are too many of them to be asked for.
 */
function rowsToShow(taxonomy, result, unfolding) {
  const needed = new Set();
  for (const seed of [...unfolding.pinned, ...(result ? lit(result) : [])]) {
    for (let label = seed; label !== -1 && !needed.has(label); label = taxonomy.parents[label]) needed.add(label);
  }
  const order = result
    ? (a, b) => (result.probabilities[b] ?? 0) - (result.probabilities[a] ?? 0) || a - b
    : () => 0; // by name already
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

/** Return the labels whose branches are shown: those that are predicted or abstained; if there are none, the nearest. */
function lit({ predicted, abstained, probabilities }) {
  const labels = [...predicted, ...abstained];
  if (!labels.length) return nearest(probabilities);
  if (labels.length > MOST) labels.sort(([, a], [, b]) => b - a);
  return labels.slice(0, MOST).map(([label]) => label);
}

/** Return the few most probable labels. */
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

const TYPING = 600; // milliseconds within which letters belong to one word that is typed ahead

/** Shows a tree in a list; `choose(label)` is called when a label is clicked or Enter is pressed on it. */
export class TreeView {
  constructor(list, choose) {
    Object.assign(this, { list, choose, taxonomy: null, result: null, chosen: null, current: null });
    this.thresholdOf = () => null;
    this.unfolding = new Unfolding();
    this.rows = [];
    this.items = new Map(); // key of a row -> its element
    this.typed = { text: "", time: 0 };
    list.addEventListener("click", (event) => this.clicked(event));
    list.addEventListener("keydown", (event) => this.pressed(event));
    list.addEventListener("focusin", (event) => this.setCurrent(event.target.dataset.key));
  }

  /** Show a tree without lights. */
  setTaxonomy(taxonomy) {
    this.taxonomy = taxonomy;
    this.refold();
    this.show(null);
    this.list.removeAttribute("aria-busy");
  }

  /** Forget what was opened, closed and looked for. */
  refold() {
    this.unfolding = new Unfolding();
  }

  /** Light up a result; see `rowsToShow`. */
  show(result) {
    this.result = result;
    this.render();
  }

  /** Mark the label that is explained, or none. */
  setChosen(label) {
    this.chosen = label;
    this.render();
  }

  /** Scroll to the row with the focus, if need be. */
  keepInSight() {
    this.items.get(this.current)?.scrollIntoView({ block: "nearest" });
  }

  /** Go back to the label that was explained, which is explained no more. */
  focusChosen() {
    const key = `l${this.chosen}`;
    this.setChosen(null);
    this.focus(key);
  }

  /** Show a label wherever it is, and put the focus on it. */
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

  /** Return the key of the row that takes the place of the current one when that goes. */
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
    const words = { idle: "", predicted: ", predicted", abstained: ", abstained", absent: ", not predicted" }[state];
    setAttributes(item, {
      "aria-expanded": row.expanded === undefined ? null : String(row.expanded),
      "aria-selected": String(label === this.chosen),
      "aria-label": this.taxonomy.names[label] + (probability === undefined ? "" : `, ${percent(probability)}`) + words,
    });
  }

  /** Return whether a label is lit, and its probability, undefined where that is not known. */
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

  /** Do what Enter and a click do: explain a label, show more of them. */
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

  /** Go to the next label that begins with what was typed. */
  typeAhead(letter, place) {
    const now = performance.now();
    this.typed = { text: now - this.typed.time < TYPING ? this.typed.text + letter : letter, time: now };
    const start = this.typed.text.toLowerCase();
    const from = start.length > 1 ? place : place + 1; // a first letter leaves the row it was typed on
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

  /** Let the Tab key lead to one row only. */
  setCurrent(key) {
    if (!key || key === this.current) return;
    this.items.get(this.current)?.setAttribute("tabindex", "-1");
    this.current = key;
    this.items.get(key)?.setAttribute("tabindex", "0");
  }
}

const FOUND = 12; // labels that the search shows

/** `found(label)` is called with the label that was picked. */
export class SearchBox {
  constructor(found) {
    Object.assign(this, { found, taxonomy: null, labels: [], active: -1 });
    Object.assign(this, { input: byId("find"), list: byId("found-labels") });
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
    this.list.replaceChildren(...this.labels.map((label, place) => this.option(label, place)));
    if (query && !this.labels.length) {
      this.list.append(element("li", { role: "option", "aria-disabled": "true" }, "No label has this in its name"));
    }
    this.list.hidden = !query;
    this.input.setAttribute("aria-expanded", String(Boolean(query)));
    this.activate(this.labels.length ? 0 : -1);
  }

  option(label, place) {
    const above = this.taxonomy.path(label).slice(0, -1).map((node) => this.taxonomy.names[node]);
    return element(
      "li",
      { role: "option", id: `found-${place}`, "data-place": place },
      element("bdi", { class: "name" }, this.taxonomy.names[label]),
      above.length ? element("bdi", { class: "quiet" }, above.join(" › ")) : null,
    );
  }

  activate(place) {
    this.active = place;
    [...this.list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === place)));
    if (place < 0) this.input.removeAttribute("aria-activedescendant");
    else this.input.setAttribute("aria-activedescendant", `found-${place}`);
    this.list.children[place]?.scrollIntoView({ block: "nearest" });
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
    const label = this.labels[place];
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
