// One item as an article: its steps as words, a timeline, pictures or a graph, and the details of the step chosen.
function itemArticle(item, focus) {
  const count = item.errors, total = item.judged;
  const words = total === 0 ? "true labels unknown" : count === 0 ? "all right" : total === 1 ? "wrong"
    : `${count.toLocaleString("en")} of ${total.toLocaleString("en")} wrong`;
  const article = make("article", { class: "item", "data-item": item.n, "aria-label": `${item.name}, ${words}` });
  const head = make("header", {}, make("h3", { text: item.name }),
    make("span", { class: count ? "bad" : total ? "good" : "note", text: words }),
    make("span", { class: "note", text: item.chances ? `least sure ${data.step}: ${percent(item.least)}` : "" }));
  if (item.cut) head.append(make("span", { class: "note", text: item.cut }));
  const detail = make("div", { class: "details" });
  const state = { step: -1, article, item };
  const choose = (step) => {
    state.step = step;
    detail.replaceChildren(detailOf(item, step));
    article.dispatchEvent(new CustomEvent("chosen", { detail: step }));
  };
  const view = { text: wordSteps, row: wordSteps, graph: graphSteps, time: timeline, picture: pictures }[item.look];
  article.append(head, view(item, choose, article, focus), detail);
  return article;
}

// Steps as a row of buttons; one of them takes the tabulator's stop, arrow keys go on from there.
function wordSteps(item, choose, article, focus) {
  const box = make("div", { class: "steps", role: "group", "aria-label": `${plural(data.step, 2)} of ${item.name}; arrow keys move, Enter opens` });
  const buttons = [];
  const open = (step) => {
    const again = buttons[step].getAttribute("aria-expanded") === "true";
    buttons.forEach((button, k) => {
      button.setAttribute("aria-expanded", String(k === step && !again));
      button.tabIndex = k === step ? 0 : -1;
    });
    if (again) article.querySelector(".details").replaceChildren();
    else choose(step);
  };
  for (let step = 0; step < item.size; step++) {
    const sure = item.sure(step), gold = item.gold[step], wrong = item.bad[step], word = item.texts ? item.texts[step] : `#${item.from + step}`;
    const state = gold < 0 ? "true label unknown" : wrong ? `wrong, the true label is ${named(gold)}` : "right";
    const button = make("button", { type: "button", class: "step" + (wrong ? " wrong" : "") + (sure !== null && sure < 0.7 ? " doubt" : "")
      + (focus && focus(item, step) ? " hit" : ""), "aria-expanded": "false", tabindex: step ? -1 : 0, title: sure === null ? null
      : `${named(item.said[step])} ${percent(sure)}`,
      "aria-label": `${word}: ${named(item.said[step])}${sure === null ? "" : `, ${percent(sure)}`}, ${state}` },
      make("span", { class: "word", text: word }), make("span", { class: "label", text: named(item.said[step]) }),
      wrong ? make("span", { class: "true", text: `✗ true: ${named(gold)}` }) : null);
    button.addEventListener("click", () => open(step));
    buttons.push(tint(button, item.said[step]));
  }
  box.addEventListener("keydown", (event) => {
    const here = buttons.indexOf(document.activeElement);
    const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (here < 0 || to === undefined || !buttons[to]) return;
    buttons[here].tabIndex = -1;
    buttons[to].tabIndex = 0;
    buttons[to].focus();
    event.preventDefault();
  });
  box.append(...buttons);
  article.addEventListener("begin", () => { if (buttons.length) open(Math.max(item.bad.indexOf(1), 0)); });
  return box;
}

function graphSteps(item, choose, article, focus) {
  const box = make("div");
  if (item.edges.length && item.size <= 80) {
    const gap = Math.max(16, Math.min(48, 900 / item.size)), wide = gap * item.size;
    const far = Math.max(...item.edges.map(([a, b]) => Math.abs(a - b)));
    const high = Math.min(26 + far * gap * 0.35, 220);
    const picture = drawn("svg", { class: "arcs", viewBox: `0 0 ${wide} ${high + 22}`, width: wide, role: "img",
      "aria-label": `The graph: ${item.size} nodes in order, ${item.edges.length} edges as arcs` });
    const x = (k) => (k + 0.5) * gap;
    for (const [a, b] of item.edges) {
      const up = Math.min((Math.abs(a - b) / Math.max(far, 1)) * (high - 14) + 8, high - 6);
      picture.append(drawn("path", { d: `M ${x(a)} ${high} Q ${(x(a) + x(b)) / 2} ${high - 2 * up + 8} ${x(b)} ${high}` }));
    }
    for (let k = 0; k < item.size; k++) {
      const dot = drawn("circle", { cx: x(k), cy: high + 6, r: Math.min(gap / 3, 7) });
      dot.style.fill = colour(item.said[k]);
      dot.style.fillOpacity = String(0.25 + 0.75 * (item.sure(k) ?? 1));
      if (item.bad[k]) { dot.style.stroke = "var(--bad)"; dot.style.strokeWidth = "3"; }
      dot.addEventListener("click", () => choose(k));
      picture.append(dot);
    }
    box.append(picture, make("p", { class: "note", text: "Nodes in order, edges as arcs; colour is the predicted label, paler where the model is "
      + "less sure, ringed where it is wrong." }));
  }
  box.append(wordSteps(item, choose, article, focus));
  return box;
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function sharp(canvas, wide, high) {
  const ratio = globalThis.devicePixelRatio || 1;
  canvas.width = Math.round(wide * ratio);
  canvas.height = Math.round(high * ratio);
  canvas.style.height = `${high}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

// A recording over time: true and predicted labels, where they differ, probabilities, and signals below.
function timeline(item, choose, article) {
  const LEFT = 88, LANE = 20, CHANCE = 70, SIGNAL = 46;
  const canvas = make("canvas", { class: "time", role: "img", "aria-label": `${item.name} over time: true labels, predicted labels, errors, `
    + `${item.chances ? "probabilities" : ""}${item.signals.length ? `, signals ${item.signals.map((s) => s.name).join(", ")}` : ""}` });
  const seek = make("input", { class: "seek", type: "range", min: 0, max: item.size - 1, value: 0, step: 1 });
  const where = make("span", { text: "" });
  const row = make("label", { class: "seek-row" }, where, seek);
  const curves = item.signals.map((s) => ({ ...s, low: unpacked(s.a, "u1"), high: unpacked(s.b, "u1") }));
  const high = 2 * LANE + 33 + (item.chances ? CHANCE + 10 : 0) + curves.length * (SIGNAL + 6) + 22;
  let now = -1;
  const explained = new Set(Object.keys(item.why).map((t) => Math.floor((Number(t) - item.from) / item.factor)));

  function draw() {
    const wide = canvas.clientWidth || 700, pen = sharp(canvas, wide, high), span = wide - LEFT - 4;
    const X = (t) => LEFT + (t / item.size) * span;
    const cell = (t, top, tall) => { // whole pixels, so that neighbours neither overlap nor leave a gap
      const ratio = globalThis.devicePixelRatio || 1, first = Math.floor(X(t) * ratio), last = Math.max(Math.floor(X(t + 1) * ratio), first + 1);
      pen.fillRect(first / ratio, top, (last - first) / ratio, tall);
    };
    const ink = style("--ink"), soft = style("--soft"), line = style("--line");
    pen.clearRect(0, 0, wide, high);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const write = (text, y) => { pen.fillStyle = soft; pen.fillText(text.length > 13 ? `${text.slice(0, 12)}…` : text, 0, y); };
    let top = 0;
    for (const [name, codes] of [["true", item.gold], ["predicted", item.said]]) {
      write(name, top + LANE / 2);
      for (let t = 0; t < item.size; t++) {
        if (codes[t] < 0) continue;
        pen.fillStyle = colour(codes[t]);
        cell(t, top, LANE - 2);
      }
      top += LANE;
    }
    write("wrong", top + 7);
    pen.fillStyle = style("--bad");
    for (let t = 0; t < item.size; t++) if (item.bad[t]) cell(t, top, 13);
    top += 18;
    if (explained.size) {
      pen.fillStyle = ink;
      for (const t of explained) { pen.beginPath(); pen.arc(X(t + 0.5), top + 5, 2.6, 0, 7); pen.fill(); }
      write("reasons at •", top + 6);
    }
    top += 15;
    if (item.chances) {
      write("probability", top + CHANCE / 2);
      for (let t = 0; t < item.size; t++) {
        let below = 0;
        for (let k = 0; k < item.k; k++) {
          const share = item.chances[t * item.k + k] / 65535;
          pen.fillStyle = colour(item.ids ? item.ids[t * item.k + k] : k);
          cell(t, top + CHANCE - (below + share) * CHANCE, share * CHANCE + 0.5);
          below += share;
        }
      }
      top += CHANCE + 10;
    }
    for (const curve of curves) {
      const size = curve.low.length, at = (k) => LEFT + ((k + 0.5) / size) * span, Y = (v) => top + SIGNAL - 2 - (v / 254) * (SIGNAL - 4);
      write(curve.name, top + SIGNAL / 2);
      pen.strokeStyle = line;
      pen.strokeRect(LEFT, top, span, SIGNAL);
      pen.strokeStyle = ink;
      pen.lineWidth = 1;
      pen.beginPath();
      for (let k = 0; k < size; k++) {
        if (curve.low[k] === 255) continue;
        if (k && curve.low[k - 1] !== 255) pen.lineTo(at(k), Y(curve.low[k])); else pen.moveTo(at(k), Y(curve.low[k]));
        pen.lineTo(at(k), Y(curve.high[k]));
      }
      pen.stroke();
      top += SIGNAL + 6;
    }
    pen.fillStyle = soft;
    const ticks = span < 420 ? 1 : 4;
    for (let k = 0; k <= ticks; k++) {
      pen.textAlign = k === 0 ? "left" : k === ticks ? "right" : "center";
      pen.fillText(placed(item, Math.round((k / ticks) * item.size)), LEFT + (k / ticks) * span, top + 8);
    }
    pen.textAlign = "left";
    if (now >= 0) { pen.fillStyle = ink; pen.fillRect(X(now + 0.5) - 1, 0, 2, top); }
  }
  const go = (step) => {
    now = Math.min(Math.max(step, 0), item.size - 1);
    seek.value = String(now);
    where.textContent = `At ${placed(item, now)}: true ${named(item.gold[now])}, predicted ${named(item.said[now])}`;
    draw();
    choose(now);
  };
  const first = explained.size ? Math.min(...explained) : item.bad.indexOf(1);
  where.textContent = "Click the timeline or move the slider (arrow keys) to look at a moment.";
  seek.addEventListener("input", () => go(Number(seek.value)));
  canvas.addEventListener("pointerdown", (event) => {
    const box = canvas.getBoundingClientRect();
    let step = Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT - 4)) * item.size);
    const near = [...explained].filter((t) => Math.abs(t - step) <= item.size / 150).sort((a, b) => Math.abs(a - step) - Math.abs(b - step));
    if (near.length) step = near[0];
    go(step);
  });
  redraws.push(draw);
  new ResizeObserver(draw).observe(canvas);
  if (first > 0) seek.value = String(first);
  article.addEventListener("begin", () => go(Math.max(first, 0)));
  article.addEventListener("seek", (event) => go(event.detail));
  return make("div", {}, canvas, row);
}

// An image: what was seen, the truth, the prediction with its errors, and how probable a label is at every pixel.
function pictures(item, choose, article) {
  const [high, wide] = item.shape, scale = Math.max(1, Math.min(Math.floor(240 / wide), Math.floor(240 / high), 24));
  const box = make("div", { class: "pictures" }), marks = [];
  let chosen = -1, label = -1;
  const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  const mix = (share, from, to) => from.map((value, k) => Math.round(value + (to[k] - value) * share));
  function panel(title, paint, mark) {
    const canvas = make("canvas", { width: wide * scale, height: high * scale, tabindex: 0, role: "img", "aria-label": `${item.name}: ${title}; arrow `
      + "keys choose a pixel" });
    const caption = make("figcaption", { text: title });
    const draw = () => {
      const pen = canvas.getContext("2d");
      for (let k = 0; k < item.size; k++) {
        pen.fillStyle = `rgb(${paint(k).join(",")})`;
        pen.fillRect((k % wide) * scale, Math.floor(k / wide) * scale, scale, scale);
      }
      if (mark) {
        pen.strokeStyle = "#e00000";
        pen.lineWidth = Math.max(scale / 8, 1);
        for (let k = 0; k < item.size; k++) if (item.bad[k])
          pen.strokeRect((k % wide) * scale + 1, Math.floor(k / wide) * scale + 1, scale - 2, scale - 2);
      }
      if (chosen >= 0) {
        pen.strokeStyle = style("--accent");
        pen.lineWidth = 2;
        pen.strokeRect((chosen % wide) * scale - 1, Math.floor(chosen / wide) * scale - 1, scale + 2, scale + 2);
      }
    };
    canvas.pick = (step) => { if (step >= 0 && step < item.size) { chosen = step; marks.forEach((redraw) => redraw()); choose(step); } };
    canvas.addEventListener("pointerdown", (event) => {
      const at = canvas.getBoundingClientRect();
      const column = Math.floor(((event.clientX - at.left) / at.width) * wide), row = Math.floor(((event.clientY - at.top) / at.height) * high);
      canvas.pick(row * wide + column);
    });
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide }[event.key];
      if (!move) return;
      canvas.pick(chosen < 0 ? 0 : chosen + move);
      event.preventDefault();
    });
    marks.push(draw);
    redraws.push(draw);
    draw();
    const figure = make("figure", {}, caption, canvas);
    box.append(figure);
    return { figure, caption, draw };
  }
  if (item.picture) {
    const seen = unpacked(item.picture, "u1");
    panel("What the model saw", (k) => [seen[3 * k], seen[3 * k + 1], seen[3 * k + 2]]);
  }
  panel("True labels", (k) => rgb(colour(item.gold[k])));
  panel("Predicted, errors framed", (k) => rgb(colour(item.said[k])), true);
  if (item.chances) {
    const last = panel("How sure of the prediction", (k) => {
      const share = label < 0 ? item.sure(k) : item.chance(k, label);
      return mix(share, [20, 20, 40], [255, 240, 150]);
    });
    const options = [make("option", { value: -1, text: "the predicted label" })];
    data.labels.forEach((name, code) => options.push(make("option", { value: code, text: name })));
    const select = make("select", { "aria-label": "Label whose probability is drawn", on: { change: () => { label = Number(select.value); last.draw(); } } }, ...options);
    last.caption.replaceChildren(make("label", {}, "Probability (bright) of ", select));
  }
  const start = Math.max(item.bad.indexOf(1), 0);
  article.addEventListener("begin", () => box.querySelector("canvas").pick(start));
  return box;
}
