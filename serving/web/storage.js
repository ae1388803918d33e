// What the browser keeps for this page; where it may keep nothing, that is forgotten with the page.

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
