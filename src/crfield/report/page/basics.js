// What all parts of the page share. Texts of the user reach the page by textContent and by nothing else.
const find = (id) => document.getElementById(id);
const data = JSON.parse(find("data").textContent);

function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") element.textContent = value;
    else if (name === "class") element.className = value;
    else if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function drawn(tag, options = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(options)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

function unpacked(text, kind) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
  if (kind === "u1") return bytes;
  return kind === "i2" ? new Int16Array(bytes.buffer) : new Uint16Array(bytes.buffer);
}

// Okabe & Ito's colours, which most colour-blind people can tell apart, then some more. Tags of a span, B-NP and I-NP,
// share one; what is outside of all spans is grey.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#9a8b00", "#7f6fd0", "#a0522d", "#5f9ea0", "#c04080",
  "#6b8e23"];
const kinds = [];
const kindOf = data.labels.map((label, code) => {
  const kind = data.tags && /^[BIESLU]-/.test(label) ? label.slice(2) : label;
  if ((data.tags && label === "O") || code === data.background) return -1;
  if (!kinds.includes(kind)) kinds.push(kind);
  return kinds.indexOf(kind);
});
const colour = (code) => (code < 0 || kindOf[code] < 0 ? "#8a9099" : COLOURS[kindOf[code] % COLOURS.length]);
const named = (code) => (code < 0 ? "unknown" : data.labels[code]);
const tint = (element, code) => { element.style.setProperty("--c", colour(code)); return element; };
const percent = (share) => {
  const value = 100 * share;
  return value > 0 && value < 0.1 ? "< 0.1 %" : value < 100 && value > 99.9 ? "> 99.9 %" : `${value.toFixed(1)} %`;
};
const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
const plural = (word, count) => (count === 1 ? word : `${word}s`);

// An item of the data with its arrays unpacked, and what is asked of it.
function opened(raw) {
  const item = { ...raw, gold: unpacked(raw.gold, "i2"), said: unpacked(raw.said, "i2") };
  item.size = item.said.length;
  item.bad = unpacked(raw.bad, "u1");
  item.chances = raw.p === null ? null : unpacked(raw.p, "u2");
  item.ids = raw.ids === null ? null : unpacked(raw.ids, "u2");
  item.chance = (step, code) => {
    if (!item.chances) return null;
    for (let k = 0; k < item.k; k++)
      if ((item.ids ? item.ids[step * item.k + k] : k) === code) return item.chances[step * item.k + k] / 65535;
    return 0;
  };
  if (raw.alone !== null) item.alone = { k: raw.k, ids: raw.aloneIds === null ? null : unpacked(raw.aloneIds, "u2"), p: unpacked(raw.alone, "u2") };
  item.sure = (step) => item.chance(step, item.said[step]);
  item.least = 1;
  for (let t = 0; t < item.size; t++) item.least = Math.min(item.least, item.sure(t) ?? 1);
  return item;
}
const items = data.items.map(opened);

const storage = { get: () => { try { return localStorage.getItem("crfield-theme"); } catch { return null; } },
  set: (value) => { try { localStorage.setItem("crfield-theme", value); } catch { /* a file may have no storage */ } } };
const redraws = [];

function startTheme() {
  const button = find("theme"), root = document.documentElement;
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : preferred.matches);
  const show = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", dark() ? "Switch to light colours" : "Switch to dark colours");
    for (const redraw of redraws) redraw();
  };
  const kept = storage.get();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    storage.set(root.dataset.theme);
    show();
  });
  preferred.addEventListener("change", show);
  button.hidden = false;
  show();
}
