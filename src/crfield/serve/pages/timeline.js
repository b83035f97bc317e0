// A recording as a timeline: signals above, then the labels of the file, the predicted ones and their probability.

import { hueOf, make, percent, tagOf } from "./shared.js";

const STRIP = 22, GAP = 6, LEFT = 70;

/** The timeline of a sequence of numbers; ``show(t)`` is called with the step that is clicked. */
export function timeline(model, one, show) {
  const canvas = make("canvas", { role: "img", tabindex: "0", "aria-label": "Signals over time, with true and predicted labels below; arrow keys move, Enter shows a step" });
  const readout = make("p", { class: "note" }, "Move over the picture to read it; click a step to see why.");
  const holder = make("div", { class: "timeline" }, canvas, readout);
  const steps = one.labels.length, rows = one.steps.length;
  const channels = one.steps[0] ? one.steps[0].length : 0;
  const strips = one.gold ? 3 : 2, HEIGHT = channels ? 260 : 6;
  let at = -1;

  const ranges = [];
  for (let c = 0; c < channels; c++) {
    let low = Infinity, high = -Infinity;
    for (const row of one.steps) { low = Math.min(low, row[c]); high = Math.max(high, row[c]); }
    ranges.push([low, high > low ? high : low + 1]);
  }

  function draw() {
    const wide = holder.clientWidth || 800, sharp = devicePixelRatio || 1;
    const high = HEIGHT + strips * (STRIP + GAP);
    canvas.width = wide * sharp; canvas.height = high * sharp; canvas.style.height = `${high}px`;
    const pen = canvas.getContext("2d");
    pen.scale(sharp, sharp);
    const css = getComputedStyle(document.documentElement);
    const ink = css.getPropertyValue("--ink"), soft = css.getPropertyValue("--soft"), line = css.getPropertyValue("--line");
    const dark = document.documentElement.dataset.theme === "dark";
    const colour = (hue, more = 0) => `hsl(${hue} 55% ${dark ? 42 + more : 60 + more}%)`;
    const X = (t) => LEFT + ((wide - LEFT) * t) / Math.max(steps, 1);
    pen.font = "12px system-ui, sans-serif";
    const shown = Math.min(channels, 8), each = (HEIGHT - 10) / Math.max(shown, 1);
    for (let c = 0; c < shown; c++) {
      const [low, top] = ranges[c], base = 5 + each * c;
      pen.strokeStyle = line; pen.beginPath(); pen.moveTo(LEFT, base + each); pen.lineTo(wide, base + each); pen.stroke();
      pen.fillStyle = soft; pen.fillText(String(model.columns[c] || `signal ${c + 1}`).slice(0, 10), 0, base + each / 2 + 4);
      pen.strokeStyle = dark ? `hsl(${210 + 47 * c} 60% 70%)` : `hsl(${210 + 47 * c} 60% 38%)`; pen.lineWidth = 1.2; pen.beginPath();
      const every = Math.max(1, Math.floor(rows / (2 * wide)));
      for (let r = 0; r < rows; r += every) {
        const y = base + each - 3 - ((one.steps[r][c] - low) / (top - low)) * (each - 6);
        const x = LEFT + ((wide - LEFT) * (r + 0.5)) / rows;
        r ? pen.lineTo(x, y) : pen.moveTo(x, y);
      }
      pen.stroke();
    }
    let y = HEIGHT;
    const strip = (name, labels) => {
      pen.fillStyle = soft; pen.fillText(name, 0, y + STRIP - 6);
      for (let t = 0; t < steps; ) {
        let end = t + 1;
        while (end < steps && labels[end] === labels[t]) end++;
        if (labels[t] !== null) {
          pen.fillStyle = colour(hueOf(labels[t])); pen.fillRect(X(t), y, Math.max(X(end) - X(t), 1), STRIP);
          const text = String(labels[t]);
          if (pen.measureText(text).width + 6 < X(end) - X(t)) { pen.fillStyle = dark ? "#fff" : "#111"; pen.fillText(text, X(t) + 4, y + STRIP - 6); }
        }
        t = end;
      }
      y += STRIP + GAP;
    };
    if (one.gold) strip("file", one.gold);
    strip("predicted", one.labels);
    pen.fillStyle = soft; pen.fillText("certainty", 0, y + STRIP - 6);
    if (one.probabilities) {
      for (let t = 0; t < steps; t++) {
        const p = Math.max(...one.probabilities[t]);
        pen.fillStyle = p < 0.5 ? css.getPropertyValue("--bad") : ink;
        pen.fillRect(X(t), y + STRIP * (1 - p), Math.max(X(t + 1) - X(t), 0.7), STRIP * p);
      }
    }
    if (one.range) {
      const [a, b] = one.range;
      pen.strokeStyle = css.getPropertyValue("--focus"); pen.lineWidth = 2; pen.strokeRect(X(a), 2, Math.max(X(b + 1) - X(a), 2), high - 4);
    } else if (at >= 0) { pen.strokeStyle = css.getPropertyValue("--focus"); pen.lineWidth = 2; pen.strokeRect(X(at), 2, Math.max(X(at + 1) - X(at), 2), high - 4); }
  }

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT)) * steps);
  };
  function read(t) {
    at = t;
    const p = one.probabilities ? percent(Math.max(...one.probabilities[t])) : "";
    const gold = one.gold && one.gold[t] !== null ? [" · in the file ", tagOf(one.gold[t])] : [];
    readout.replaceChildren(`step ${t + 1} of ${steps}: `, tagOf(one.labels[t]), ` ${p}`, ...gold);
    draw();
  }
  canvas.addEventListener("pointermove", (event) => { const t = place(event); if (t >= 0 && t < steps) read(t); });
  canvas.addEventListener("click", (event) => { const t = place(event); if (t >= 0 && t < steps) { read(t); show(t, event); } });
  canvas.addEventListener("keydown", (event) => {
    if (one.range) return; // the page has the keys
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (move) { read(Math.min(Math.max(at + move, 0), steps - 1)); event.preventDefault(); }
    if (event.key === "Enter" && at >= 0) show(at);
  });
  new ResizeObserver(draw).observe(holder);
  addEventListener("themechange", draw);
  holder.redraw = draw;
  return holder;
}
