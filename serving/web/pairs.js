// Typed lines with a text, a sign and its translation.

/** The pairs in lines of `text = translation`, or with a tab in place of `=`; blank lines are left out. */
export function pairs(typed) {
  const lines = typed.split("\n").map((text, place) => ({ text, number: place + 1 }));
  return lines.filter(({ text }) => text.trim()).map(pair);
}

function pair({ text, number }) {
  const sign = text.includes("\t") ? "\t" : "=";
  const [source, ...rest] = text.split(sign).map((part) => part.trim());
  const target = rest.join(sign);
  if (!source || !target) throw new Error(`Line ${number} must be a text, = and its translation, but is “${text.trim()}”.`);
  return { source, target };
}
