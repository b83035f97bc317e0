// Labelling: the sequence that the model is least sure of, corrected by keyboard or pointer, stored, and the next one.

import { Refused, ask, download, find, make, meter, say, tagOf } from "./shared.js";
import { timeline } from "./timeline.js";

const KEYS = "123456789abcdefghijklmnopqrtvwxyz"; // s and u have other meanings
let about = null, item = null, labels = [], from = 0, to = 0, history = [], picture = null, busy = false;

let person = localStorage.getItem("crfield-person");
if (!person) {
  person = `person-${Array.from(crypto.getRandomValues(new Uint8Array(3)), (b) => b.toString(16).padStart(2, "0")).join("")}`;
  localStorage.setItem("crfield-person", person);
}

const chance = (t, label) => {
  const k = item.classes ? item.classes.indexOf(label) : -1;
  return k < 0 ? null : item.probabilities[t][k];
};
const range = () => [Math.min(from, to), Math.max(from, to)];

// ------------------------------------------------------------------ the sequence

function show() {
  const place = find("steps");
  const [first, last] = range();
  if (about.form === "numbers") {
    place.hidden = true;
    if (!picture) {
      picture = { labels, steps: item.steps, gold: null, probabilities: item.probabilities, range: [first, last] };
      picture.element = timeline(about, picture, (t, event) => choose(t, event && event.shiftKey));
      find("signals").replaceChildren(picture.element);
    }
    picture.labels = labels;
    picture.range = [first, last];
    picture.element.redraw();
  } else {
    place.hidden = false;
    place.replaceChildren(...labels.map((label, t) => step(label, t, t >= first && t <= last)));
    place.children[to]?.scrollIntoView({ block: "nearest" });
  }
  buttons();
}

function step(label, t, selected) {
  const [word, ...others] = item.steps[t];
  const p = label === null ? null : chance(t, label);
  const changed = item.start[t] !== label ? " changed" : "";
  const doubt = chance(t, item.labels[t]) !== null && chance(t, item.labels[t]) < 0.7 ? " doubt" : "";
  return make("div", { class: `step${changed}${doubt}`, role: "option", "aria-selected": String(selected), onclick: (event) => choose(t, event.shiftKey) },
    make("span", { class: "word" }, word || "∅"),
    others.length ? make("span", { class: "other" }, others.slice(0, 3).join(" ")) : null,
    tagOf(label),
    p === null ? null : meter(label, p));
}

function choose(t, extend) {
  to = Math.min(Math.max(t, 0), labels.length - 1);
  if (!extend) from = to;
  show();
}

/** Give the selected steps a label; a span of B-X goes on with I-X where there is such a label. */
function set(label) {
  const [first, last] = range();
  history.push(labels.slice());
  for (let t = first; t <= last; t++) {
    const inside = t > first && typeof label === "string" && label.startsWith("B-") ? `I-${label.slice(2)}` : label;
    labels[t] = about.labels.includes(inside) || inside === null ? inside : label;
  }
  if (first === last && to < labels.length - 1) from = to = to + 1;
  else from = to;
  show();
}

function buttons() {
  const [first, last] = range();
  const listed = about.labels.map((label, k) => [label, KEYS[k] || ""]);
  const row = (label, key) => {
    const p = label === null ? null : chance(to, label);
    return make("button", { type: "button", tabindex: "-1", "aria-pressed": String(labels[to] === label), onclick: () => { set(label); find("steps").focus(); } },
      key ? make("kbd", {}, key) : make("span"), tagOf(label),
      p === null ? make("span") : meter(label, p));
  };
  find("choose-title").textContent = first === last ? `Step ${to + 1}${about.form === "numbers" ? "" : `: “${item.steps[to][0]}”`}` : `Steps ${first + 1} to ${last + 1}`;
  find("labels").replaceChildren(...listed.map(([label, key]) => row(label, key)), row(null, "0"));
}

function put(next) {
  item = next;
  picture = null;
  history = [];
  find("signals").replaceChildren();
  if (!item) {
    find("task-title").textContent = "Nothing is left to label.";
    find("why-this").textContent = "Every sequence has an answer, or others are looking at the last ones.";
    find("steps").replaceChildren();
    find("labels").replaceChildren();
    for (const id of ["store", "skip", "undo"]) find(id).disabled = true;
    return;
  }
  for (const id of ["store", "skip", "undo"]) find(id).disabled = false;
  item.start = item.answer || item.labels;
  labels = item.start.slice();
  from = to = 0;
  const again = item.answer ? `Answered before by ${item.person}, version ${item.version}.` : "";
  find("task-title").textContent = `Sequence ${item.sequence + 1}`;
  find("why-this").textContent = again || (item.doubt === null || item.doubt === undefined ? "" : `The model is least sure of this one: ${item.doubt.toFixed(2)} nats a step.`);
  show();
  find("steps").focus({ preventScroll: true });
}

// ------------------------------------------------------------------ questions and answers

async function attempt(work) {
  if (busy) return;
  busy = true;
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    say(error.message, "error");
    return error;
  } finally {
    busy = false;
  }
}

const next = () => attempt(async () => put((await ask("/v1/labelling/next", { person })).item));

async function store() {
  const failed = await attempt(async () => {
    const told = await ask("/v1/labelling/answer", { person, sequence: item.sequence, version: item.version, labels });
    say(`Stored: sequence ${told.sequence + 1}, version ${told.version}.`, "good");
    put((await ask("/v1/labelling/next", { person })).item);
  });
  if (failed && failed.status === 409) {
    const there = failed.told.there;
    say(there ? `${there.person} was quicker: their answer is kept, and shown now. Change it if it is wrong, and store again.` : failed.message, "error");
    if (there) await attempt(async () => put((await ask("/v1/labelling/open", { person, sequence: item.sequence })).item));
  }
  refresh();
}

async function skip() {
  await attempt(async () => {
    await ask("/v1/labelling/skip", { person, sequence: item.sequence });
    put((await ask("/v1/labelling/next", { person })).item);
    say("");
  });
}

function undo() {
  if (history.length) labels = history.pop();
  show();
}

async function refresh() {
  try {
    about = await ask("/v1/labelling");
    const answers = (await ask("/v1/labelling/answers")).answers;
    progress();
    find("answers").replaceChildren(...answers.map((one) => make("li", {},
      make("button", { type: "button", onclick: () => attempt(async () => put((await ask("/v1/labelling/open", { person, sequence: one.sequence })).item)) }, (one.text || `sequence ${one.sequence + 1}`).slice(0, 70)),
      make("span", { class: "note" }, ` ${one.person}${one.version > 1 ? `, version ${one.version}` : ""}${one.open ? `, ${one.open} open` : ""}`))));
  } catch (error) {
    say(error.message, "error");
  }
}

function progress() {
  const words = [`${about.answered} of ${about.sequences} sequences have an answer.`];
  if (!about.learns) words.push("This kind of model does not learn from answers; they are kept.");
  else if (about.learning || about.taught < about.answered) words.push("The model is learning …");
  else if (about.taught) words.push(`The model has learnt from ${about.taught}.`);
  if (about.failed) words.push(`It did not learn: ${about.failed}`);
  find("progress").textContent = words.join(" ");
  const held = about.scores.length > 0;
  const line = held ? about.scores : smooth(about.agreement);
  find("chart").replaceChildren(...(line.length > 1 ? [chart(line)] : []));
  find("chart-note").textContent = held
    ? `${about.score_name} on the held-out data, now ${line[line.length - 1][1].toFixed(3)}, by answers.`
    : about.agreement.length ? "How often the model had said the same as you, the mean of the last ten answers. With --dev a held-out score is drawn." : "";
}

/** Means of ten answers: how often the model was right before it was told. */
function smooth(agreement) {
  const known = agreement.filter((one) => one !== null);
  return known.map((_, k) => {
    const part = known.slice(Math.max(0, k - 9), k + 1);
    return [k + 1, part.reduce((sum, one) => sum + one, 0) / part.length];
  });
}

function chart(line) {
  const space = "http://www.w3.org/2000/svg", wide = 300, high = 130, left = 38, base = high - 20;
  const node = (name, attributes, text) => {
    const element = document.createElementNS(space, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const values = line.map((point) => point[1]);
  let low = Math.min(...values), high_ = Math.max(...values);
  if (high_ - low < 0.02) { const middle = (low + high_) / 2; low = middle - 0.01; high_ = middle + 0.01; }
  const most = Math.max(...line.map((point) => point[0]), 1);
  const X = (n) => left + ((wide - left - 8) * n) / most, Y = (v) => base - ((base - 10) * (v - low)) / (high_ - low);
  const svg = node("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `Score by answers, from ${values[0].toFixed(3)} to ${values[values.length - 1].toFixed(3)}` });
  for (const v of [low, high_]) svg.append(node("line", { class: "axis", x1: left, x2: wide, y1: Y(v), y2: Y(v) }), node("text", { x: 0, y: Y(v) + 4 }, v.toFixed(3)));
  svg.append(node("text", { x: left, y: high - 4 }, "0"), node("text", { x: wide - 8, y: high - 4, "text-anchor": "end" }, `${most} answers`));
  svg.append(node("polyline", { class: "score", points: line.map(([n, v]) => `${X(n)},${Y(v)}`).join(" ") }));
  const end = line[line.length - 1];
  svg.append(node("circle", { cx: X(end[0]), cy: Y(end[1]), r: 4 }));
  return svg;
}

// ------------------------------------------------------------------ keys

function nextDoubt() {
  for (let k = 1; k <= labels.length; k++) {
    const t = (to + k) % labels.length;
    const p = labels[t] === null ? 0 : chance(t, labels[t]);
    if (p !== null && p < 0.8) return choose(t, false);
  }
  choose(to + 1, false);
}

function pressed(event) {
  const key = event.key, typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  const onButton = event.target.tagName === "BUTTON" || event.target.tagName === "A";
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !item) return;
  if (key === "Enter" || key === " ") { if (onButton) return; key === "Enter" ? store() : nextDoubt(); }
  else if (key === "ArrowRight") choose(to + 1, event.shiftKey);
  else if (key === "ArrowLeft") choose(to - 1, event.shiftKey);
  else if (key === "Home") choose(0, event.shiftKey);
  else if (key === "End") choose(labels.length - 1, event.shiftKey);
  else if (key === "0" || key === "Backspace" || key === "Delete") set(null);
  else if (key === "s") skip();
  else if (key === "u") undo();
  else {
    const k = KEYS.indexOf(key);
    if (key.length !== 1 || k < 0 || k >= about.labels.length) return;
    set(about.labels[k]);
  }
  event.preventDefault();
}

async function begin() {
  find("person").value = person;
  find("person").addEventListener("change", (event) => {
    person = event.target.value.trim() || person;
    event.target.value = person;
    localStorage.setItem("crfield-person", person);
    next();
  });
  find("store").addEventListener("click", store);
  find("skip").addEventListener("click", skip);
  find("undo").addEventListener("click", undo);
  find("export").addEventListener("click", (event) => { event.preventDefault(); download("/v1/labelling/export", "labels.conll"); });
  addEventListener("keydown", pressed);
  await refresh();
  if (about) await next();
  setInterval(() => { if (about && (about.learning || about.taught < about.answered)) refresh(); }, 1500);
}

begin();
