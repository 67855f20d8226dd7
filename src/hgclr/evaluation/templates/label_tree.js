"use strict";
// The label tree of a report. Rows are created when a branch is opened, so that large trees stay fast.
(() => {
  const PIECE = 500; // siblings shown at once
  const MATCHES = 200; // maximum search results shown
  const root = document.getElementById("label-tree");
  const labels = JSON.parse(document.getElementById("label-tree-data").textContent);
  const { names, parents, gold, predicted, right } = labels;
  const children = new Map();
  parents.forEach((parent, label) => {
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(label);
  });
  const lower = names.map((name) => name.toLowerCase());
  const [find, order, present] = ["find", "order", "present"].map((name) => root.querySelector(`[name="${name}"]`));
  const status = root.querySelector("[role=status]");
  const tree = root.querySelector("[role=tree]");

  const share = (part, whole) => (whole ? part / whole : null);
  const f1 = (label) => share(2 * right[label], predicted[label] + gold[label]);
  const shown = (value) => (value === null ? "–" : (100 * value).toFixed(1));
  const orders = {
    tree: () => 0,
    name: (a, b) => names[a].localeCompare(names[b]),
    // Labels without a score come last.
    worst: (a, b) => (f1(a) ?? 2) - (f1(b) ?? 2) || gold[b] - gold[a],
    frequent: (a, b) => gold[b] - gold[a],
  };

  // A label without documents is shown if a label below it occurs.
  const occurs = names.map((_, label) => gold[label] + predicted[label] > 0);
  occurs.forEach((own, label) => {
    if (own) for (let up = parents[label]; up >= 0 && !occurs[up]; up = parents[up]) occurs[up] = true;
  });

  let wanted = ""; // the search text
  let found = null; // labels shown during a search
  let above = null; // ancestors of the labels found

  const below = (label) =>
    (children.get(label) ?? [])
      .filter((child) => (found === null ? !present.checked || occurs[child] : found.has(child)))
      .sort(orders[order.value]);

  const element = (tag, properties = {}, ...content) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
    made.append(...content);
    return made;
  };

  const nameOf = (label) => {
    const place = wanted ? lower[label].indexOf(wanted) : -1;
    const cell = element("span", { class: "name" });
    if (place < 0) cell.append(names[label]);
    else {
      const end = place + wanted.length;
      const hit = element("mark", {}, names[label].slice(place, end));
      cell.append(names[label].slice(0, place), hit, names[label].slice(end));
    }
    return cell;
  };

  const item = (label, level, place, size) => {
    const value = f1(label);
    const precision = shown(share(right[label], predicted[label]));
    const recall = shown(share(right[label], gold[label]));
    const bar = element("span", { class: value === null ? "bar none" : "bar" }, element("i"), shown(value));
    if (value === null) bar.replaceChildren("", "–");
    else bar.style.setProperty("--value", value);
    const row = element("div", { class: "row" }, nameOf(label));
    for (const text of [gold[label].toLocaleString("en"), precision, recall]) row.append(element("span", {}, text));
    row.append(bar);
    const made = element("li", {
      role: "treeitem",
      tabindex: "-1",
      "aria-level": level,
      "aria-posinset": place,
      "aria-setsize": size,
      "aria-label":
        `${names[label]}: ${gold[label]} documents, precision ${precision}, recall ${recall}, F1 ${shown(value)}`,
    });
    made.style.setProperty("--level", level);
    made.label = label;
    made.append(row);
    if (below(label).length) {
      made.setAttribute("aria-expanded", "false");
      if (above?.has(label)) toggle(made, true);
    }
    return made;
  };

  const fill = (list, siblings, level, from = 0) => {
    const to = Math.min(siblings.length, from + PIECE);
    for (let place = from; place < to; place++) list.append(item(siblings[place], level, place + 1, siblings.length));
    if (to === siblings.length) return;
    const button = element("button", { type: "button" }, `show more of ${siblings.length.toLocaleString("en")}`);
    const more = element("li", { class: "more", role: "none" }, button);
    button.addEventListener("click", () => {
      more.remove();
      fill(list, siblings, level, to);
    });
    list.append(more);
  };

  const toggle = (node, open) => {
    node.setAttribute("aria-expanded", open);
    node.querySelector(":scope > ul")?.remove();
    if (!open) return;
    const group = element("ul", { role: "group" });
    fill(group, below(node.label), Number(node.getAttribute("aria-level")) + 1);
    node.append(group);
  };

  const focus = (node) => {
    if (!node) return;
    tree.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
    node.setAttribute("tabindex", "0");
    node.focus();
  };

  const search = () => {
    wanted = find.value.trim().toLowerCase();
    found = above = null;
    status.textContent = "";
    if (!wanted) return;
    const hits = [...names.keys()].filter((label) => lower[label].includes(wanted));
    found = new Set();
    above = new Set();
    for (const hit of hits.slice(0, MATCHES)) {
      found.add(hit);
      for (let up = parents[hit]; up >= 0; up = parents[up]) {
        found.add(up);
        above.add(up);
      }
    }
    const count = `${hits.length.toLocaleString("en")} ${hits.length === 1 ? "label" : "labels"} found`;
    status.textContent = hits.length > MATCHES ? `${count}, the first ${MATCHES} are shown` : count;
  };

  const build = () => {
    search();
    tree.replaceChildren();
    const top = below(-1);
    fill(tree, top, 1);
    tree.querySelector("li[role=treeitem]")?.setAttribute("tabindex", "0");
    if (top.length === 1 && found === null) toggle(tree.firstElementChild, true);
  };

  tree.addEventListener("click", (event) => {
    const node = event.target.closest(".row")?.parentElement;
    if (!node) return;
    if (node.hasAttribute("aria-expanded")) toggle(node, node.getAttribute("aria-expanded") !== "true");
    focus(node);
  });
  tree.addEventListener("keydown", (event) => {
    const node = event.target.closest("[role=treeitem]");
    if (!node || event.altKey || event.ctrlKey || event.metaKey) return;
    const all = [...tree.querySelectorAll("[role=treeitem]")];
    const state = node.getAttribute("aria-expanded");
    const moves = {
      ArrowDown: () => focus(all[all.indexOf(node) + 1]),
      ArrowUp: () => focus(all[all.indexOf(node) - 1]),
      Home: () => focus(all[0]),
      End: () => focus(all.at(-1)),
      ArrowRight: () => (state === "false" ? toggle(node, true) : state && focus(all[all.indexOf(node) + 1])),
      ArrowLeft: () =>
        state === "true" ? toggle(node, false) : focus(node.parentElement.closest("[role=treeitem]")),
      Enter: () => state && toggle(node, state === "false"),
      " ": () => state && toggle(node, state === "false"),
    };
    if (!moves[event.key] || event.target.tagName === "BUTTON") return;
    event.preventDefault();
    moves[event.key]();
  });
  for (const control of [find, order, present]) control.addEventListener("input", build);
  build();
})();
