// One sequence: its steps with labels and probabilities, and for a step what else it might be, and why.

import { ask, hueOf, make, meter, percent, tagOf } from "./shared.js";
import { timeline } from "./timeline.js";

/** How often the labels differ from those of the file. */
export const errorsOf = (one) =>
  one.gold ? one.labels.filter((label, t) => one.gold[t] !== null && one.gold[t] !== label).length : 0;

/** A card for a sequence; ``one`` has number, name, steps, labels, probabilities, classes, gold, doubt, perStep. */
export function card(model, one) {
  const details = make("div", { class: "details", hidden: true, role: "region", "aria-label": "About the step" });
  const numbers = one.numbers;
  const errors = errorsOf(one);
  const head = make("div", { class: "head" },
    make("span", {}, `${one.name || `sequence ${one.number + 1}`} · ${one.labels.length} steps`),
    make("span", {}, [
      one.doubt === undefined ? "" : `doubt ${one.doubt.toFixed(3)} nats a step`,
      one.gold ? (errors ? `${errors} differ from the file` : "all as in the file") : "",
    ].filter(Boolean).join(" · ")));
  let chosen = -1;
  const show = (t) => {
    details.hidden = chosen === t;
    chosen = chosen === t ? -1 : t;
    for (const [k, button] of buttons.entries()) button.setAttribute("aria-pressed", String(k === chosen));
    if (chosen >= 0) explain(details, model, one, t);
  };
  const buttons = [];
  let body;
  if (numbers) {
    body = timeline(model, one, show);
  } else {
    body = make("div", { class: "steps" });
    for (let t = 0; t < one.labels.length; t++) {
      const button = step(one, t, () => show(t));
      buttons.push(button);
      body.append(button);
    }
  }
  return make("article", { class: "card" }, head, body, details);
}

function step(one, t, onclick) {
  const label = one.labels[t];
  const [word, ...others] = one.steps[t];
  const gold = one.gold && one.gold[t] !== null && one.gold[t] !== label ? one.gold[t] : null;
  const p = one.probabilities ? one.probabilities[t][one.classes.indexOf(label)] : null;
  return make("button", { class: "step", type: "button", "aria-pressed": "false", onclick },
    make("span", { class: "word" }, word || "∅"),
    others.length ? make("span", { class: "other" }, others.slice(0, 3).join(" ")) : null,
    tagOf(label),
    p === null ? null : meter(label, p),
    gold === null ? null : make("span", { class: "gold" }, `file: ${gold}`));
}

/** Probabilities of a step, the labellings of the whole sequence, and a button for why. */
function explain(place, model, one, t) {
  place.replaceChildren();
  const word = one.numbers ? `step ${t + 1}` : `“${one.steps[t][0]}”`;
  if (one.probabilities) {
    const listed = one.classes.map((label, k) => [label, one.probabilities[t][k]]).sort((a, b) => b[1] - a[1]).slice(0, 6);
    const bars = make("div", { class: "bars" });
    for (const [label, p] of listed) {
      bars.append(tagOf(label), make("div", { class: "track", "--p": p, "--hue": hueOf(label) }, make("i")), make("span", { class: "number" }, percent(p)));
    }
    place.append(make("section", {}, make("h3", {}, `What ${word} might be`), bars));
  }
  if (model.can.includes("n_best")) {
    const list = make("ol", { class: "n-best" }, make("li", {}, "…"));
    place.append(make("section", {}, make("h3", {}, "The whole sequence, most probable first"), list));
    nBest(list, model, one);
  }
  if (model.can.includes("explain") && one.sent) {
    const why = make("section", { class: "wide" });
    const button = make("button", { type: "button", class: "why-button", onclick: () => reasons(why, model, one, t) }, `Why ${one.labels[t]}?`);
    why.append(button);
    place.append(why);
  }
}

async function nBest(list, model, one) {
  try {
    if (!one.nBest) one.nBest = (await ask("/v1/predict", { model: model.name, ...question(one), n_best: 5 })).n_best;
    const found = Array.isArray(one.nBest[0]) ? one.nBest[0] : one.nBest;
    list.replaceChildren(...found.map((labelling, k) => make("li", {}, make("span", {}, percent(labelling.probability)), parts(labelling.labels, k ? found[0].labels : null))));
  } catch (error) {
    list.replaceChildren(make("li", { class: "error" }, error.message));
  }
}

/** Labels of a labelling: all of the best, of others those that differ from it. */
function parts(labels, best) {
  const tags = make("span", { class: "tags" });
  if (!best && labels.length > 60) { // runs of equal labels
    for (let t = 0, end; t < labels.length && tags.childElementCount < 60; t = end) {
      for (end = t + 1; end < labels.length && labels[end] === labels[t]; ) end++;
      tags.append(tagOf(labels[t]), make("span", { class: "where" }, `× ${end - t}`));
    }
    return tags;
  }
  let hidden = 0;
  labels.forEach((label, t) => {
    const differs = best && best[t] !== label;
    if (best && !differs) hidden += 1;
    else if (tags.childElementCount < 40) tags.append(tagOf(label, { title: `step ${t + 1}: ${label}` }), best ? make("span", { class: "where" }, `step ${t + 1}`) : "");
  });
  if (best && hidden) tags.append(make("span", { class: "where" }, "the rest as above"));
  return tags;
}

const question = (one) => (typeof one.sent === "string" ? { text: one.sent } : { sequence: one.sent });

function flipped(flip) {
  if (flip.becomes === null) return `${flip.text[0].toUpperCase()}${flip.text.slice(1)}.`;
  return `Without ${flip.removed.map((one) => `${one.name} (step ${one.step + 1})`).join(", ")} it is ${flip.becomes}.`;
}

function times(margin) {
  const ratio = Math.exp(margin);
  return margin > 14 ? "more than a million times" : `${ratio >= 10 ? Math.round(ratio).toLocaleString("en") : ratio.toFixed(1)} times`;
}

const CONSTANT = { "(bias)": "how frequent the label is", "(start)": "the first label", "(end)": "the last label" };

/** What a feature looks at: the words for a line of the template, or the step that it belongs to. */
function meaning(model, c) {
  const line = model.template[String(c.feature).split(":")[0]];
  return [line || CONSTANT[c.feature] || "", `step ${c.step + 1}`].filter(Boolean).join(", ");
}

async function reasons(place, model, one, t) {
  place.replaceChildren(make("p", { class: "note" }, "…"));
  try {
    const told = await ask("/v1/explain", { model: model.name, ...question(one), step: t });
    const most = Math.max(...told.contributions.map((c) => Math.abs(c.amount)), 1e-9);
    const bars = make("div", { class: "bars why" });
    for (const c of told.contributions.slice(0, 14)) {
      bars.append(
        make("span", {}, c.value !== 1 && c.value !== null ? `${c.name} = ${Number(c.value.toPrecision(3))}` : c.name, make("span", { class: "where" }, ` ${meaning(model, c)}`)),
        make("div", { class: `track${c.amount < 0 ? " less" : ""}`, "--p": Math.abs(c.amount) / most }, make("i")),
        make("span", { class: "number" }, (c.amount > 0 ? "+" : "−") + Math.abs(c.amount).toFixed(2)));
    }
    const title = told.other === null
      ? `Nothing but ${told.label} is possible here.`
      : `Why ${told.label}, and not ${told.other}?`;
    const words = told.margin === null ? "" :
      `The best labelling with ${told.label} here is ${times(told.margin)} as probable as the best with ${told.other}: their scores differ by ${told.margin.toFixed(2)}. ` +
      `These parts add up to that: to the right what speaks for ${told.label}, to the left what speaks for ${told.other}.`;
    place.replaceChildren(make("h3", {}, title), make("p", { class: "note" }, words), bars,
      make("h3", {}, told.flip ? "What would change it?" : ""), make("p", { class: "flip note" }, told.flip ? flipped(told.flip) : ""));
  } catch (error) {
    place.replaceChildren(make("p", { class: "error" }, error.message));
  }
}
