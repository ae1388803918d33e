// A menu of other continuations from a word of the translation.

import { create } from "./dom.js";
import { words } from "./words.js";

const FOLLOWING = 3;
const EDGE = 8;

export class AlternativesMenu {
  constructor(menu) {
    this._menu = menu;
    menu.addEventListener("keydown", (event) => this._key(event));
  }

  /** Offer choices below an element; `onChoose` gets the prefix that the chosen one stands for. */
  open(anchor, choices, onChoose) {
    this._menu.replaceChildren(...choices.map((choice) => this._item(choice, onChoose)));
    if (!choices.length) this._menu.append(create("p", { textContent: "No alternatives here" }));
    this._menu.showPopover();
    this._place(anchor.getBoundingClientRect());
    this._items[0]?.focus();
  }

  get _items() {
    return [...this._menu.querySelectorAll("[role=menuitem]")];
  }

  _item({ prefix, word, rest }, onChoose) {
    const item = create(
      "button",
      { type: "button", role: "menuitem", tabIndex: -1, dir: "auto" },
      create("strong", { textContent: word }),
      rest,
    );
    item.addEventListener("click", () => {
      this._menu.hidePopover();
      onChoose(prefix);
    });
    return item;
  }

  _place(anchor) {
    const { offsetWidth, offsetHeight, style } = this._menu;
    const right = document.documentElement.clientWidth - offsetWidth - EDGE;
    const below = anchor.bottom + offsetHeight < innerHeight;
    style.left = `${Math.max(EDGE, Math.min(anchor.left, right))}px`;
    style.top = `${below ? anchor.bottom : Math.max(EDGE, anchor.top - offsetHeight)}px`;
  }

  _key(event) {
    const items = this._items;
    const place = items.indexOf(document.activeElement);
    const moves = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: -1 };
    if (event.key === "Tab") this._menu.hidePopover();
    if (place < 0 || !(event.key in moves)) return;
    event.preventDefault();
    items.at(moves[event.key] % items.length).focus();
  }
}

/** The continuations of hypotheses after their first `count` words: the next word, and a few more. */
export function choicesAfter(count, hypotheses) {
  const choices = new Map();
  for (const { text } of hypotheses) {
    const all = words(text);
    const next = all[count];
    if (!next) continue;
    const end = (all[count + FOLLOWING] ?? all.at(-1)).end;
    const rest = text.slice(next.end, end) + (end < all.at(-1).end ? " …" : "");
    const prefix = text.slice(0, next.end);
    if (!choices.has(prefix)) choices.set(prefix, { prefix, word: next.text, rest });
  }
  return [...choices.values()];
}
