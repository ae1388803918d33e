// The source text: a textarea over a mirror of the same text, whose words can be highlighted.

import { create } from "./dom.js";
import { segments } from "./words.js";

export class Editor {
  /** `onPoint(number)` gets the word under the pointer or the caret; null if there is none. */
  constructor(area, mirror, onPoint) {
    this._area = area;
    this._mirror = mirror;
    this._words = [];
    area.addEventListener("mousemove", (event) => onPoint(this._under(event)));
    area.addEventListener("mouseleave", () => onPoint(null));
    area.addEventListener("keyup", () => onPoint(this._atCaret()));
    area.addEventListener("blur", () => onPoint(null));
    this.refresh();
  }

  get text() {
    return this._area.value;
  }

  set text(value) {
    this._area.value = value;
    this.refresh();
  }

  /** Number of code points, which the server counts. */
  get length() {
    return [...this.text].length;
  }

  focus() {
    this._area.focus();
  }

  /** Let the next typed text replace the present one. */
  select() {
    this._area.select();
  }

  /** Forget the words, because the text has changed. */
  refresh() {
    this._words = [];
    this._mirror.textContent = this._padded();
  }

  /** Divide the text into words; returns them. */
  showWords() {
    this._words = [];
    const parts = segments(this.text).map((segment) => {
      if (!segment.isWord) return segment.text;
      const span = create("span", { textContent: segment.text });
      this._words.push({ ...segment, span });
      return span;
    });
    this._mirror.replaceChildren(...parts, "\u200b");
    return this._words;
  }

  highlight(numbers) {
    for (const [number, { span }] of this._words.entries()) {
      span.classList.toggle("linked", numbers.has(number));
    }
  }

  _padded() {
    return `${this.text}\u200b`; // gives a line break at the end its line
  }

  _under(event) {
    const spans = document.elementsFromPoint(event.clientX, event.clientY);
    return this._number(this._words.findIndex(({ span }) => spans.includes(span)));
  }

  _atCaret() {
    const caret = this._area.selectionStart;
    return this._number(this._words.findIndex(({ start, end }) => start <= caret && caret <= end));
  }

  _number(found) {
    return found < 0 ? null : found;
  }
}
