// Texts divided into words, and data about the words by position.
//
// The server counts in code points, JavaScript in UTF-16 units; each word has both.

/**
 * Words of a text and the text between them, in order:
 * `{text, isWord, start, end, begin, stop}`, [start, end) in UTF-16 units, [begin, stop) in code
 * points.
 */
export function segments(text) {
  let begin = 0;
  return pieces(text).map(({ segment, index, isWordLike }) => {
    const stop = begin + [...segment].length;
    const end = index + segment.length;
    const found = { text: segment, isWord: Boolean(isWordLike), start: index, end, begin, stop };
    begin = stop;
    return found;
  });
}

function pieces(text) {
  return [...new Intl.Segmenter(undefined, { granularity: "word" }).segment(text)];
}

export const words = (text) => segments(text).filter((segment) => segment.isWord);

/**
 * For each word of a translation the numbers of the source's words it is linked with, and the
 * reverse, from links in code points.
 */
export function crossLinks(sourceWords, targetWords, alignment) {
  const toSource = targetWords.map(() => new Set());
  const toTarget = sourceWords.map(() => new Set());
  for (const link of alignment) {
    for (const t of overlapping(targetWords, link.target)) {
      for (const s of overlapping(sourceWords, link.source)) {
        toSource[t].add(s);
        toTarget[s].add(t);
      }
    }
  }
  return { toSource, toTarget };
}

function overlapping(list, [begin, stop]) {
  return list.flatMap((word, number) => (word.begin < stop && begin < word.stop ? [number] : []));
}

const FURTHEST = 32;

/**
 * The probability of each word of a translation: that of its least likely token; null where no
 * token is found in the word. Tokens are SentencePiece's, whose `▁` is a space. Scores may have one
 * for the end as well; if there are more, for the ends of sentences within the text, it is not
 * known which belongs to which token.
 */
export function wordProbabilities(targetWords, text, tokens, tokenScores) {
  const lowest = targetWords.map(() => null);
  if (tokenScores.length > tokens.length + 1) return lowest;
  let place = 0;
  for (const [number, token] of tokens.entries()) {
    const written = token.replaceAll("▁", "");
    const found = written && number < tokenScores.length ? text.indexOf(written, place) : -1;
    if (found < 0 || found > place + FURTHEST) continue; // bytes, or text that was put in afterwards
    place = found + written.length;
    for (const [w, word] of targetWords.entries()) {
      if (word.start < place && found < word.end) {
        lowest[w] = Math.min(lowest[w] ?? 1, Math.exp(tokenScores[number]));
      }
    }
  }
  return lowest;
}
