// Find a label by a part of its name: a text field with a list of what was found.

import { byId, element } from "./element.js";

const SHOWN = 12;

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
    this.labels = this.taxonomy.search(query, SHOWN);
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
