// The explorer: a text or a file goes to the server, and comes back with labels, probabilities and doubts.

import { ask, find, hueOf, kindOf, make, say, tagOf } from "./shared.js";
import { card, errorsOf } from "./sequence.js";

const PAGE = 30; // sequences shown at a time
let models = [], shown = [], count = PAGE, last = "", ready;
const known = new Promise((resolve) => { ready = resolve; }); // the models have been told

const model = () => models.find((one) => one.name === find("model").value);

const HELP = {
  columns: (m) => m.width > 1
    ? `One token a line, its ${m.width} columns with blanks between (${m.columns.join(", ") || "as in the file of training"}); an empty line ends a sequence.`
    : "Type a sentence: words with blanks between, a line a sentence. A file may have one token a line.",
  records: () => "One step a line, as CRFsuite's files: a label, or any word in its place, then features with tabs between. Or JSON: [{\"word\": \"He\"}, …].",
  numbers: (m) => m.reads_text
    ? `A table (CSV) with a header and the columns ${m.columns.join(", ")}; a row a sample.`
    : `Rows of ${m.width} numbers with blanks or commas between, one a line; an empty line ends a sequence.`,
  tracks: (m) => `A table (CSV) of tracks, a row for each time and agent, with places in ${m.columns.join(", ")}.`,
};

const EXAMPLES = {
  columns: (m) => m.width > 1
    ? "He PRP\nreckons VBZ\nthe DT\ncurrent JJ\naccount NN\ndeficit NN\nwill MD\nnarrow VB\nto TO\nonly RB\n# #\n1.8 CD\nbillion CD\nin IN\nSeptember NNP\n. ."
      .split("\n").map((line) => [...line.split(" "), ...Array(Math.max(m.width - 2, 0)).fill("_")].slice(0, m.width).join(" ")).join("\n")
    : "Ann lives in San Sebastián .",
  records: () => "?\tw=2\ts=d\n?\tw=cups\ts=x\n?\tw=sugar\ts=x",
  numbers: (m) => m.reads_text
    ? [m.columns.join(","), ...Array.from({ length: 40 }, (_, t) => m.columns.map((_, c) => Math.sin(t / (3 + c)).toFixed(3)).join(","))].join("\n")
    : Array.from({ length: 30 }, (_, t) => Array.from({ length: m.width }, (_, c) => Math.sin(t / (3 + c)).toFixed(2)).join(" ")).join("\n"),
  tracks: () => "",
};

/** The question that a text is: JSON, rows of numbers, a plain sentence, or the lines of a file. */
function questionOf(text, m) {
  const bare = text.trim();
  if (/^[[{]/.test(bare) && m.form !== "columns") {
    try {
      const found = JSON.parse(bare);
      if (Array.isArray(found)) return Array.isArray(found[0]) && typeof found[0][0] === "object" ? { sequences: found } : { sequence: found };
    } catch { /* lines of a file */ }
  }
  if (m.form === "numbers" && !m.reads_text) {
    return { sequences: bare.split(/\n\s*\n/).map((part) => part.split("\n").map((line) => line.trim().split(/[\s,;]+/).map(Number))) };
  }
  if (m.form === "columns" && m.width === 1 && bare.split("\n").every((line) => !line.trim() || line.trim().split(/\s+/).length > 1)) {
    return { sequences: bare.split("\n").filter((line) => line.trim()).map((line) => line.trim().split(/\s+/)) };
  }
  return { text };
}

async function label(text) {
  await known;
  const m = model();
  if (!text.trim()) return say("There is nothing to label yet: type something, or open a file.", "error");
  last = text;
  say("…");
  find("go").disabled = true;
  const began = performance.now();
  try {
    const asked = { model: m.name, ...questionOf(text, m), echo: m.form !== "tracks" };
    if (m.can.includes("marginals")) asked.marginals = true;
    if (m.can.includes("doubt")) asked.doubt = true;
    let told;
    try {
      told = await ask("/v1/predict", asked);
    } catch (error) {
      if (error.status !== 413 || !asked.marginals) throw error;
      delete asked.marginals; // too many steps for all probabilities at once
      told = await ask("/v1/predict", asked);
    }
    arrange(m, told, asked);
    say(`Labelled in ${Math.round(performance.now() - began)} ms by ${m.name}, version ${told.version}.`, "good");
    if (m.replays) {
      const made = await ask("/v1/replay", { model: m.name, text });
      find("replay").src = made.page;
      find("world").hidden = false;
    }
  } catch (error) {
    find("results").hidden = true;
    say(error.message + (error.told && error.told.where ? ` (${error.told.where})` : ""), "error");
  } finally {
    find("go").disabled = false;
  }
}

/** Lists of an answer as one object a sequence. */
function arrange(m, told, asked) {
  const lists = asked.sequence ? Object.fromEntries(Object.entries(told).map(([k, v]) => [k, ["labels", "steps", "probabilities", "doubt", "gold"].includes(k) ? [v] : v])) : told;
  shown = lists.labels.map((labels, number) => ({
    number, labels,
    name: told.names && told.names[number],
    steps: lists.steps ? lists.steps[number] : [],
    numbers: m.form === "tracks" || (m.form === "numbers" && Boolean(lists.steps)),
    probabilities: lists.probabilities && lists.probabilities[number],
    classes: told.classes,
    doubt: lists.doubt && lists.doubt[number],
    gold: lists.gold ? lists.gold[number] : null,
    sent: sentOf(m, asked, lists, number),
  }));
  find("world").hidden = true;
  count = PAGE;
  const warnings = find("warnings");
  warnings.replaceChildren(...(told.warnings || []).map((text) => make("li", {}, text)));
  warnings.hidden = !told.warnings;
  show();
}

/** A sequence in the form in which the server can be asked about it again. */
function sentOf(m, asked, lists, number) {
  if (asked.sequence) return asked.sequence;
  if (asked.sequences) return asked.sequences[number];
  if (m.form === "columns" || (m.form === "numbers" && (lists.per_step || 1) === 1)) return lists.steps[number];
  return lists.labels.length === 1 ? asked.text : null;
}

function show() {
  const order = find("order").value, list = [...shown];
  if (order === "doubt") list.sort((a, b) => (b.doubt ?? 0) - (a.doubt ?? 0));
  if (order === "wrong") list.sort((a, b) => errorsOf(b) - errorsOf(a));
  const steps = shown.reduce((sum, one) => sum + one.labels.length, 0);
  const wrong = shown.reduce((sum, one) => sum + errorsOf(one), 0);
  const gold = shown.some((one) => one.gold);
  find("summary").textContent = `${shown.length} sequence${shown.length === 1 ? "" : "s"}, ${steps} steps` + (gold ? `, ${(100 * (1 - wrong / Math.max(steps, 1))).toFixed(1)} % as in the file` : "");
  const kinds = [...new Set(shown.flatMap((one) => one.labels.map(kindOf)))].sort();
  kinds.forEach(hueOf);
  find("legend").replaceChildren(...kinds.slice(0, 24).map((kind) => tagOf(kind)));
  find("order").parentElement.hidden = shown.length < 2;
  find("order").querySelector('[value="wrong"]').hidden = !gold;
  find("list").replaceChildren(...list.slice(0, count).map((one) => card(model(), one)));
  find("more").hidden = list.length <= count;
  find("more").textContent = `Show more (${list.length - count} are left)`;
  find("results").hidden = false;
}

async function open(file) {
  if (!file) return;
  if (file.size > 8e6) return say(`${file.name} has ${(file.size / 1e6).toFixed(1)} MB; the page takes 8 MB at a time. crfield tag reads files of any size.`, "error");
  const text = await file.text();
  find("text").value = text.length > 20_000 ? `${text.slice(0, 20_000)}\n…` : text;
  await label(text);
}

function chosen() {
  const m = model();
  find("reads").textContent = HELP[m.form](m);
  find("text").placeholder = EXAMPLES[m.form](m).split("\n").slice(0, 5).join("\n");
  find("example").hidden = m.form === "tracks";
  find("results").hidden = true;
  find("world").hidden = true;
  find("versions").textContent = `${m.kind}, version ${m.version}, ${m.labels.length} labels` + (m.failed ? `; the newer file cannot be used: ${m.failed}` : "");
}

/** What can be done before the models are known is listened to at once, and waits for them in label(). */
function listen() {
  find("model").addEventListener("change", chosen);
  find("go").addEventListener("click", () => label(find("text").value.endsWith("\n…") ? last : find("text").value));
  find("example").addEventListener("click", async () => { await known; find("text").value = EXAMPLES[model().form](model()); label(find("text").value); });
  find("file").addEventListener("change", (event) => open(event.target.files[0]));
  find("order").addEventListener("change", () => { count = PAGE; show(); });
  find("more").addEventListener("click", () => { count += PAGE; show(); });
  find("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("go").click(); });
  addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("drop"); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("drop"); });
  addEventListener("drop", (event) => { event.preventDefault(); document.body.classList.remove("drop"); open(event.dataTransfer.files[0]); });
}

async function begin() {
  listen();
  try {
    models = (await ask("/v1/models")).models;
  } catch (error) {
    return say(error.message, "error");
  }
  find("model").replaceChildren(...models.map((one) => make("option", { value: one.name }, one.name)));
  chosen();
  ready();
  const labelling = await ask("/openapi.json");
  find("to-label").hidden = !labelling.paths["/v1/labelling"];
}

begin();
