// Runs the script of a replay page without a browser: a page of stubs that remembers what it was told.
// Usage: node replay_check.js page.html; prints what was seen as one JSON object.
"use strict";
const fs = require("fs");
const vm = require("vm");

const html = fs.readFileSync(process.argv[2], "utf8");
const [, data] = html.match(/<script type="application\/json" id="data">([^]*?)<\/script>/);
const [, script] = html.match(/<script>([^]*?)<\/script>/);
const calls = {};
const pen = () => new Proxy({}, {
  get: (target, name) => (name in target ? target[name] : (...args) => {
    for (const value of args.flat()) if (typeof value === "number" && !Number.isFinite(value)) throw new Error(`${String(name)} got ${value}`);
    calls[name] = (calls[name] || 0) + 1;
  }),
});
const made = {};
function element(id) {
  const heard = {};
  const context = pen();
  return {
    id, style: {}, dataset: {}, children: [], textContent: "", className: "", hidden: false, value: "0", clientWidth: 400,
    appendChild(child) { this.children.push(child); },
    addEventListener(name, what) { heard[name] = what; },
    tell(name, event) { heard[name](event); },
    getContext: () => context,
    getBoundingClientRect: () => ({ left: 0, width: 400 }),
  };
}
const known = new Set([...html.matchAll(/id="(\w+)"/g)].map((found) => found[1]));
const page = Object.assign(element("page"), {
  body: element("body"),
  getElementById(id) {
    if (!known.has(id)) return null;
    return made[id] || (made[id] = element(id));
  },
  createElement: element,
  querySelectorAll: () => [],
});
page.getElementById("data").textContent = data;
let tick = null;
const world = { atob, document: page, console, requestAnimationFrame: (what) => { tick = what; }, addEventListener: () => {} };
vm.createContext(world);
vm.runInContext(script.replace("const Replay =", "globalThis.Replay ="), world);

const seen = { ready: page.body.dataset.ready, at: [] };
for (const id of known) page.getElementById(id);
const look = () => ({
  time: made.time.textContent, truth: made.truth.textContent, predicted: made.predicted.textContent,
  wrong: made.predicted.className.includes("wrong"), score: made.score.textContent, play: made.play.textContent,
  frame: Number(made.seek.value), bars: made.bars.children.map((row) => row.children[2].textContent),
});
if (seen.ready !== "0") {
  seen.at.push(look());
  for (const frame of process.argv.slice(3)) {
    made.seek.tell("input", { target: { value: frame } });
    seen.at.push(look());
  }
  made.seek.tell("input", { target: { value: "0" } });
  made.play.tell("click");
  for (let k = 0; k <= 30; k++) tick(1000 + k * 20);
  seen.playing = look();
  made.play.tell("click");
  tick(5000);
  seen.paused = look();
  made.overview.tell("pointerdown", { clientX: 200 });
  seen.clicked = look();
  page.tell("keydown", { key: "ArrowRight", shiftKey: false, target: page, preventDefault() {} });
  seen.stepped = look();
  const game = world.Replay.decode(JSON.parse(data));
  seen.agents = world.Replay.at(game, Number(process.argv[3] || 0)).agents;
  seen.calls = calls;
}
console.log(JSON.stringify(seen));
