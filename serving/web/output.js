// The best translation, word for word: highlighted, shaded, and one tab stop with arrow keys.

import { create } from "./dom.js";
import { segments, wordProbabilities } from "./words.js";

const UNSURE = 0.5;
const VERY_UNSURE = 0.2;

export class Output {
  /** `onPoint(number)` gets the word under the pointer or with the focus, null if there is
   * none; `onChoose(word)` the one that was clicked. */
  constructor(box, onPoint, onChoose) {
    this._box = box;
    this._words = [];
    this._onPoint = onPoint;
    this._onChoose = onChoose;
    box.addEventListener("keydown", (event) => this._key(event));
  }

  get text() {
    return this._box.textContent;
  }

  set busy(busy) {
    this._box.setAttribute("aria-busy", busy);
  }

  clear() {
    this._words = [];
    this._box.replaceChildren();
  }

  /** Show text without words to point at. */
  showPlain(text) {
    this._words = [];
    this._box.textContent = text;
  }

  /** Show a hypothesis; returns its words, each with its `number` and its `span`. */
  show({ text, tokens, token_scores: tokenScores }) {
    this._words = [];
    const parts = segments(text).map((segment) => {
      if (!segment.isWord) return segment.text;
      const number = this._words.length;
      const word = { ...segment, number, span: this._span(segment.text, number) };
      this._words.push(word);
      return word.span;
    });
    const probabilities = wordProbabilities(this._words, text, tokens, tokenScores);
    for (const [number, { span }] of this._words.entries()) shade(span, probabilities[number]);
    this._box.replaceChildren(...parts);
    return this._words;
  }

  highlight(numbers) {
    for (const [number, { span }] of this._words.entries()) {
      span.classList.toggle("linked", numbers.has(number));
    }
  }

  focusWord(place) {
    for (const [number, { span }] of this._words.entries()) {
      span.tabIndex = number === place ? 0 : -1;
    }
    this._words[place]?.span.focus();
  }

  _span(text, number) {
    const span = create("span", {
      textContent: text,
      className: "word",
      role: "button",
      tabIndex: number ? -1 : 0,
      aria: { haspopup: "menu" },
    });
    span.addEventListener("mouseenter", () => this._onPoint(number));
    span.addEventListener("mouseleave", () => this._onPoint(null));
    span.addEventListener("focus", () => this._onPoint(number));
    span.addEventListener("blur", () => this._onPoint(null));
    span.addEventListener("click", () => this._onChoose(this._words[number]));
    return span;
  }

  _key(event) {
    const place = this._words.findIndex(({ span }) => span === event.target);
    if (place < 0) return;
    const last = this._words.length - 1;
    const moves = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: last };
    if (event.key === "Enter" || event.key === " ") {
      this._onChoose(this._words[place]);
    } else if (event.key in moves) {
      this.focusWord(Math.min(Math.max(moves[event.key], 0), last));
    } else {
      return;
    }
    event.preventDefault();
  }
}

function shade(span, probability) {
  if (probability === null) return;
  span.classList.toggle("unsure", probability < UNSURE);
  span.classList.toggle("very-unsure", probability < VERY_UNSURE);
  span.title = `probability ${Math.round(probability * 100)} %`;
}
