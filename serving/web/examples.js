// The example that the page opens with: one sentence in the languages of the shipped models, which translate it well.

const SENTENCES = {
  de: "Wenn ich Zeit habe, rufe ich dich morgen Nachmittag an.",
  en: "If I have time, I'll call you tomorrow afternoon.",
  es: "Si tengo tiempo, te llamaré mañana por la tarde.",
  fr: "Si j'ai le temps, je t'appellerai demain après-midi.",
};

/** The sentence in a language; empty if there is none. */
export const exampleIn = (language) => SENTENCES[language] ?? "";
