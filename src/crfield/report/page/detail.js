// What is known of one step of an item: how sure, why, what would flip it, and the other labellings of the whole.
const MOST_BARS = 8;

function chanceBars(item, step, heading, k, ids, chances) {
  const rows = [];
  for (let place = step * k; place < (step + 1) * k; place++) rows.push([ids ? ids[place] : place - step * k, chances[place] / 65535]);
  rows.sort((a, b) => b[1] - a[1]);
  const gold = item.gold[step], shown = rows.filter(([, chance], k) => k < 3 || chance >= 0.0005).slice(0, MOST_BARS);
  if (gold >= 0 && !shown.some(([code]) => code === gold)) shown.push(rows.find(([code]) => code === gold) ?? [gold, 0]);
  const box = make("div", {}, make("h4", { text: heading }));
  for (const [code, chance] of shown) {
    const bar = tint(make("i"), code);
    bar.style.width = `${Math.max(100 * chance, 0.3)}%`;
    const marks = [code === item.said[step] ? "predicted" : null, code === gold ? "true" : null].filter(Boolean).join(", ");
    box.append(make("div", { class: "bar" },
      make("span", { text: named(code) + (marks ? ` (${marks})` : ""), class: code === gold && item.said[step] !== gold ? "true" : null,
        title: named(code) }), bar, make("b", { text: percent(chance) })));
  }
  return box;
}

function whyParts(item, why) {
  const box = make("div", {}, make("h4", { text: why.other === null ? `Why ${why.label}` : `Why ${why.label} and not ${why.other}` }));
  if (why.other === null) {
    box.append(make("p", { text: "No other label is possible there." }));
    return box;
  }
  const times = Math.exp(Math.min(why.margin, 60));
  const odds = times > 1e6 ? "more than a million" : times < 10 ? times.toFixed(1) : Math.round(times).toLocaleString("en");
  box.append(make("p", { class: "note", text: `The best labelling with ${why.label} scores ${why.margin.toFixed(2)} above the best one with `
    + `${why.other}; it is ${odds} times as probable. That score is the sum of:` }));
  const most = Math.max(...why.parts.map((part) => Math.abs(part[2])), 1e-9);
  const list = make("ul", { class: "parts" });
  for (const [name, place, amount, labels] of why.parts) {
    const side = make("i", { class: amount < 0 ? "minus" : "plus" });
    side.style.width = `${(100 * Math.abs(amount)) / most}%`;
    const text = data.names[name] + (labels ? `  ${labels}` : "") + (place === why.step ? "" : `, ${data.step} ${place}`);
    list.append(make("li", { class: "part" }, make("b", { text: signed(amount) }), make("span", { class: "sides" }, side),
      make("span", { text, title: text })));
  }
  if (why.more) {
    const side = make("i", { class: why.more[1] < 0 ? "minus" : "plus" });
    side.style.width = `${Math.min((100 * Math.abs(why.more[1])) / most, 100)}%`;
    list.append(make("li", { class: "part" }, make("b", { text: signed(why.more[1]) }), make("span", { class: "sides" }, side),
      make("span", { text: `${why.more[0]} smaller ones together` })));
  }
  box.append(list, make("p", { class: "note", text: `Right of the middle speaks for ${why.label}, left of it for ${why.other}.` }));
  box.append(flipOf(why));
  return box;
}

function flipOf(why) {
  if (!why.flip) return make("p", { class: "why-not", text: data.flipless });
  const told = make("div", { class: "flip", hidden: true, role: "status" });
  const button = make("button", { type: "button", class: "flip-button", text: "What would flip it?", "aria-expanded": "false", on: { click: () => {
    told.hidden = !told.hidden;
    button.setAttribute("aria-expanded", String(!told.hidden));
  } } });
  if (why.flip.becomes === null) told.append(make("p", { text: why.flip.words }));
  else {
    const gone = make("ul");
    for (const [name, place] of why.flip.removed)
      gone.append(make("li", {}, make("del", { text: data.names[name] }), ` at ${data.step} ${place}`));
    told.append(make("p", { text: `Without ${why.flip.removed.length === 1 ? "this" : `these ${why.flip.removed.length}`} it would be `
      + `${why.flip.becomes} instead of ${why.label}:` }), gone);
  }
  return make("div", {}, button, told);
}

function bestList(item) {
  const box = make("div", {}, make("h4", { text: `Most probable labellings of the whole ${data.item}` }));
  const list = make("ol", { class: "best" });
  for (const [chance, changes] of item.best) {
    const words = changes.slice(0, 12).map(([step, code]) => `${item.texts ? item.texts[step - item.from] : `${data.step} ${step}`} → ${named(code)}`);
    if (changes.length > 12) words.push(`${changes.length - 12} more`);
    list.append(make("li", { text: `${percent(chance)}: ${words.length ? words.join(", ") : "as predicted"}` }));
  }
  box.append(list);
  return box;
}

function detailOf(item, step) {
  const place = item.from + step * item.factor, gold = item.gold[step], said = item.said[step];
  const known = Object.keys(item.why).map(Number).sort((a, b) => Math.abs(a - place) - Math.abs(b - place));
  const why = known.length && known[0] >= place && known[0] < place + item.factor ? item.why[known[0]] : null;
  const what = item.texts ? `“${item.texts[step]}”` : placed(item, step);
  const verdict = gold < 0 ? "its true label is not known" : item.bad[step] ? `wrong: the true label is ${named(gold)}` : "right";
  const box = make("div", { class: "detail", role: "region", "aria-label": `Details of ${what}` });
  const first = make("div", {}, make("h4", { text: `${what}: ${named(said)}, ${verdict}` }));
  box.append(first);
  if (item.chances) first.append(chanceBars(item, step, "How sure", item.k, item.ids, item.chances));
  if (item.alone) box.append(make("div", {}, chanceBars(item, step, `The ${data.step} by itself, without its neighbours`, item.alone.k, item.alone.ids,
    item.alone.p), make("p", { class: "note", text: "What its own features alone would say; the difference is what the neighbours do." })));
  if (why) box.append(whyParts(item, why));
  else if (known.length) first.append(make("p", { class: "why-not", text: `Reasons were computed for some ${data.step}s of this ${data.item} (`
    + `marked); the nearest is ${data.step} ${known[0]}.` }));
  else if (!item.alone) first.append(make("p", { class: "why-not", text: data.whyless }));
  if (item.best.length > 1) box.append(bestList(item));
  return box;
}

function placed(item, step) {
  const place = item.from + step * item.factor;
  if (item.shape) return `row ${item.stride * Math.floor(step / item.shape[1])}, column ${item.stride * (step % item.shape[1])}`;
  if (item.seconds !== null) return clock(place * item.seconds, item.seconds * item.factor, item.seconds * item.factor * item.size);
  return `${data.step} ${place}`;
}

function clock(time, apart, whole) {
  if (whole < 300) return `${time.toFixed(apart < 0.1 ? 2 : apart < 1 ? 1 : 0)} s`;
  const seconds = Math.round(time), minutes = Math.floor(seconds / 60);
  const two = (value) => String(value).padStart(2, "0");
  return whole < 3600 ? `${minutes}:${two(seconds % 60)} min` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)} h`;
}
