// Tables of the other hypotheses, and of the same text by several models.

import { create } from "./dom.js";

const ABSENT = "–";
const percent = (value) => (value == null ? ABSENT : `${(value * 100).toFixed(0)} %`);
const milliseconds = (value) => (value == null ? ABSENT : value.toFixed(1));

/** Fill the body of a table with hypotheses, best first. */
export function showHypotheses(body, hypotheses) {
  body.replaceChildren(
    ...hypotheses.map(({ text, score, probability }) =>
      row([text, score.toFixed(3), percent(probability)]),
    ),
  );
}

/** Fill the body of a table with classes and their probabilities. */
export function showClasses(body, labels) {
  body.replaceChildren(
    ...labels.map(({ label, probability }) => row([label, `${(probability * 100).toFixed(1)} %`])),
  );
}

/** One row of the comparison; `result` is the result of `post`. */
export function comparisonRow(name, { answer, roundTrip }) {
  const [{ text, hypotheses, timing }] = answer.translations;
  const figures = [timing.queue_ms, timing.encode_ms, timing.decode_ms].map(milliseconds);
  const score = hypotheses.length ? hypotheses[0].score.toFixed(3) : ABSENT;
  const cells = [text, score, ...figures, timing.batch_size, milliseconds(roundTrip)];
  return row(cells, name);
}

export function failedRow(name, message, columns) {
  const line = row([message], name);
  line.lastChild.colSpan = columns;
  return line;
}

/** The times of a request in words. */
export function timingLine(timing, roundTrip) {
  const parts = [`queue ${milliseconds(timing.queue_ms)} ms`];
  if (timing.encode_ms != null) parts.push(`encode ${milliseconds(timing.encode_ms)} ms`);
  parts.push(`decode ${milliseconds(timing.decode_ms)} ms`);
  parts.push(timing.batch_size ? `batch of ${timing.batch_size}` : "not decoded again");
  parts.push(`round trip ${milliseconds(roundTrip)} ms`);
  return parts.join(" · ");
}

function row(cells, heading) {
  const [text, ...figures] = cells;
  const line = create("tr");
  if (heading) line.append(create("th", { scope: "row", textContent: heading }));
  line.append(create("td", { textContent: text, dir: "auto", className: "text" }));
  line.append(...figures.map((figure) => create("td", { textContent: figure })));
  return line;
}
