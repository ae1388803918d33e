"use strict";

const element = (id) => document.getElementById(id);
const [form, text, source, target] = ["form", "text", "source", "target"].map(element);
let languages = [];

async function ask(path, body) {
  const options = body && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  const response = await fetch(path, options);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function fill(select, codes) {
  const kept = select.value;
  select.replaceChildren(
    ...codes.map((code) => new Option(languages.find((l) => l.code === code).name, code)),
  );
  if (codes.includes(kept)) select.value = kept;
}

function chooseSource() {
  const language = languages.find((l) => l.code === source.value);
  fill(target, language.targets);
  element("attribution").textContent = language.models
    .map((model) => [model.name, model.attribution].filter(Boolean).join(": "))
    .join("; ");
}

function show(answer) {
  const [{ hypotheses, warnings, timing }] = answer.translations;
  element("hypotheses").replaceChildren(
    ...hypotheses.map((hypothesis) => {
      const item = document.createElement("li");
      const score = document.createElement("small");
      item.dir = "auto";
      item.textContent = hypothesis.text + " ";
      score.textContent = hypothesis.score.toFixed(3);
      score.title = "length-normalised log-probability";
      item.append(score);
      return item;
    }),
  );
  const milliseconds = (timing.queue_ms + timing.decode_ms).toFixed(0);
  element("details").textContent = [answer.model, `${milliseconds} ms`, ...warnings].join(" · ");
}

async function run(action) {
  element("error").textContent = "";
  try {
    await action();
  } catch (error) {
    element("error").textContent = error.message;
  }
}

source.addEventListener("change", chooseSource);
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  run(async () => {
    const count = Number(element("count").value) || 1;
    show(
      await ask("/translate", {
        q: text.value,
        source: source.value,
        target: target.value,
        alternatives: count - 1,
      }),
    );
  });
});
run(async () => {
  languages = await ask("/languages");
  fill(source, languages.filter((l) => l.targets.length).map((l) => l.code));
  chooseSource();
});
