// The label tree on the page: rows that light up, walked with the mouse or with the keys of the ARIA tree pattern.

import { element, setAttributes } from "./element.js";
import { rowsToShow, Unfolding } from "./tree_rows.js";
import { percent } from "./wording.js";

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
    const words = { idle: "", given: ", given", abstained: ", abstained", absent: ", not given" }[state];
    setAttributes(item, {
      "aria-expanded": row.expanded === undefined ? null : String(row.expanded),
      "aria-selected": String(label === this.chosen),
      "aria-label": this.taxonomy.names[label] + (probability === undefined ? "" : `, ${percent(probability)}`) + words,
    });
  }

  /** Return whether a label is lit, and its probability, undefined where that is not known. */
  stateOf(label) {
    if (!this.result) return ["idle", undefined];
    const { given, abstained, probabilities } = this.result;
    if (given.has(label)) return ["given", given.get(label)];
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
