// What both pages use: questions to the server, elements made of text alone, colours of labels, light and dark.
// Text from data reaches the page by textContent only, so that no name of a label or feature is ever markup.

export const find = (id) => document.getElementById(id);

/** An element with attributes and children; children that are no elements become text. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) element.style.setProperty(key, value);
    else if (key === "class") element.className = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const hash = new URLSearchParams(location.hash.slice(1));
if (hash.get("token")) {
  sessionStorage.setItem("crfield-token", hash.get("token"));
  history.replaceState(null, "", location.pathname);
}
const token = () => sessionStorage.getItem("crfield-token");

export class Refused extends Error {
  constructor(status, told) {
    super(told.message || `the server answered ${status}`);
    this.status = status;
    this.told = told;
  }
}

/** The JSON answer to a question; Refused with the server's words where there is none. */
export async function ask(path, body) {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  if (token()) headers.authorization = `Bearer ${token()}`;
  const options = body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refused(0, { message: "The server does not answer. Is it still running?" });
  }
  if (answer.status === 401) {
    const given = prompt("This server asks for its token:");
    if (given) {
      sessionStorage.setItem("crfield-token", given.trim());
      return ask(path, body);
    }
  }
  const text = await answer.text();
  let told;
  try {
    told = JSON.parse(text);
  } catch {
    told = { error: { message: text.slice(0, 300) }, text };
  }
  if (!answer.ok) throw new Refused(answer.status, told.error || {});
  return told;
}

/** A text of the server, which may need the token, offered as a file. */
export async function download(path, name) {
  const headers = token() ? { authorization: `Bearer ${token()}` } : {};
  const answer = await fetch(path, { headers });
  const link = make("a", { href: URL.createObjectURL(await answer.blob()), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** What a label is of: B-NP and I-NP are both NP. */
export const kindOf = (label) => String(label).replace(/^[BIESULM][-_]/, "");
const PLAIN = new Set(["O", "none", "None", ""]);
const HUES = [215, 140, 280, 45, 185, 320, 95, 250, 165, 300, 65, 200]; // red is for what is wrong
const hues = new Map();

/** A hue for every kind of label, far from those given before. */
export function hueOf(label) {
  const kind = kindOf(label);
  if (!hues.has(kind)) hues.set(kind, hues.size < HUES.length ? HUES[hues.size] : Math.round((hues.size * 137.5) % 360));
  return hues.get(kind);
}

export function tagOf(label, attributes = {}) {
  const { class: more = "", ...others } = attributes;
  if (label === null || label === undefined) return make("span", { class: `tag open ${more}`, ...others }, "open");
  const plain = PLAIN.has(String(label)) ? " plain" : "";
  return make("span", { class: `tag${plain} ${more}`, "--hue": hueOf(label), title: String(label), ...others }, String(label));
}

export function percent(p) {
  if (p < 0.0005) return "<0.1 %";
  if (p > 0.9995) return ">99.9 %";
  return `${(100 * p).toFixed(p < 0.1 || p > 0.99 ? 1 : 0)} %`;
}

/** A bar as long as a probability. */
export function meter(label, p) {
  const plain = PLAIN.has(String(label)) ? " plain" : "";
  return make("span", { class: `meter${p < 0.5 ? " low" : plain}`, "--hue": hueOf(label), "--p": p, title: percent(p) }, make("i"));
}

export function say(text, kind = "") {
  const status = find("status");
  status.textContent = text;
  status.className = kind;
}

function theme(name) {
  document.documentElement.dataset.theme = name;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
let chosen = localStorage.getItem("crfield-theme");
theme(chosen || (dark.matches ? "dark" : "light"));
dark.addEventListener("change", () => chosen || theme(dark.matches ? "dark" : "light"));
addEventListener("DOMContentLoaded", () => {
  find("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("crfield-theme", chosen);
    theme(chosen);
    dispatchEvent(new Event("themechange"));
  });
});
