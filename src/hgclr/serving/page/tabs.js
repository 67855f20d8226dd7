// Two tabs, with the keys of the ARIA pattern.

/** Let tabs show the panel they control; `changed(id)` is told the id of the chosen tab. */
export function makeTabs(list, changed) {
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
