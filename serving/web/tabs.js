// Tabs as in the ARIA authoring practices: arrow keys move, one tab stop for all.

/** Make a list of tabs work; returns a function that selects another tab if the selected one is hidden. */
export function tabs(list) {
  const all = [...list.querySelectorAll("[role=tab]")];
  const shown = () => all.filter((tab) => !tab.hidden);
  for (const tab of all) tab.addEventListener("click", () => select(tab));
  list.addEventListener("keydown", (event) => {
    const open = shown();
    const place = open.indexOf(document.activeElement);
    const moves = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: -1 };
    if (place < 0 || !(event.key in moves)) return;
    event.preventDefault();
    const next = open.at(moves[event.key] % open.length);
    select(next);
    next.focus();
  });

  return () => {
    const selected = all.find((tab) => tab.getAttribute("aria-selected") === "true");
    if (selected.hidden && shown().length) select(shown()[0]);
  };

  function select(chosen) {
    for (const tab of all) {
      const selected = tab === chosen;
      tab.setAttribute("aria-selected", selected);
      tab.tabIndex = selected ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !selected;
    }
  }
}
