// What the browser keeps for this page; where it may keep nothing, that is forgotten with the page.

const WORK = "macaron-work";

/** A store of the browser, `localStorage` or `sessionStorage`, or one in memory if access to it is denied. */
export function storage(name) {
  try {
    return window[name];
  } catch {
    const kept = new Map();
    return {
      getItem: (key) => kept.get(key) ?? null,
      setItem: (key, value) => kept.set(key, value),
      removeItem: (key) => kept.delete(key),
    };
  }
}

/** Keep the parameters of what is being translated, for this tab alone. */
export function keepWork(parameters) {
  try {
    storage("sessionStorage").setItem(WORK, parameters);
  } catch {
    storage("sessionStorage").removeItem(WORK); // too long to keep
  }
}

/** The parameters of the page's address, or those kept if the page has been loaded again. */
export function work() {
  const [navigation] = performance.getEntriesByType("navigation");
  const kept = navigation?.type === "reload" ? storage("sessionStorage").getItem(WORK) : null;
  return new URLSearchParams(kept ?? location.search);
}
