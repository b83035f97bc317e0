// Filters, the way from the tables to the items, and the search among features.
const AT_ONCE = 12;
const chosen = { pair: null, show: "all", order: "drawn", text: "", many: AT_ONCE };

const holds = (item, pair) => {
  for (let t = 0; t < item.size; t++) if (item.gold[t] === pair[0] && item.said[t] === pair[1]) return true;
  return false;
};
const focused = () => (chosen.pair && chosen.pair[0] !== chosen.pair[1] ? (item, t) => item.gold[t] === chosen.pair[0] && item.said[t] === chosen.pair[1]
  : null);

function wanted() {
  const text = chosen.text.trim().toLowerCase();
  const found = items.filter((item) => (!chosen.pair || holds(item, chosen.pair))
    && (chosen.show === "all" || (chosen.show === "wrong") === item.errors > 0)
    && (!text || item.name.toLowerCase().includes(text) || (item.texts && item.texts.join(" ").toLowerCase().includes(text))));
  const orders = { errors: (a, b) => b.errors - a.errors, doubt: (a, b) => a.least - b.least, number: (a, b) => a.n - b.n };
  return chosen.order === "drawn" ? found : [...found].sort(orders[chosen.order]);
}

function showItems() {
  const found = wanted(), list = find("list"), now = find("found");
  redraws.length = 0;
  list.replaceChildren(...found.slice(0, chosen.many).map((item) => itemArticle(item, focused())));
  const pair = chosen.pair ? (chosen.pair[0] === chosen.pair[1] ? ` where ${named(chosen.pair[0])} was right`
    : ` where ${named(chosen.pair[0])} was taken for ${named(chosen.pair[1])}`) : "";
  now.textContent = `${found.length} of the ${items.length} ${plural(data.item, items.length)} on this page${pair}.`;
  find("all").hidden = !chosen.pair;
  find("more").hidden = found.length <= chosen.many;
  find("more").textContent = `Show ${Math.min(found.length - chosen.many, AT_ONCE)} more`;
  for (const button of document.querySelectorAll("table.heat button"))
    button.setAttribute("aria-pressed", String(Boolean(chosen.pair) && button.dataset.pair === chosen.pair.join()));
}

function goTo(element) {
  element.scrollIntoView({ block: "start" });
  element.focus({ preventScroll: true });
}

// A cell of the confusion: the items on this page that have it, and the first such step opened.
function drill(pair) {
  Object.assign(chosen, { pair, show: "all", text: "", many: AT_ONCE });
  find("text").value = "";
  find("show").value = "all";
  showItems();
  goTo(find("sequences-heading"));
  const hit = find("list").querySelector(".step.hit");
  if (hit) hit.click();
}

function startConfusion() {
  for (const cell of document.querySelectorAll("#confusion td[data-pair]")) {
    const pair = cell.dataset.pair.split(",").map(Number), count = cell.textContent.trim();
    if (!items.some((item) => holds(item, pair))) continue;
    const words = pair[0] === pair[1] ? `${count} ${named(pair[0])} right; show some` : `${count} ${named(pair[0])} taken for ${named(pair[1])}; show some`;
    cell.replaceChildren(make("button", { type: "button", text: count, "aria-label": words, "aria-pressed": "false", "data-pair": pair.join(),
      on: { click: () => drill(pair) } }));
  }
}

function startGroups() {
  for (const link of document.querySelectorAll("button[data-open]")) {
    link.hidden = false;
    link.addEventListener("click", () => {
      const [number, step] = link.dataset.open.split(",").map(Number);
      Object.assign(chosen, { pair: null, show: "all", text: "", many: items.length });
      showItems();
      const article = find("list").querySelector(`article[data-item="${number}"]`), item = items.find((each) => each.n === number);
      if (!article) return;
      article.tabIndex = -1;
      goTo(article);
      const place = Math.floor((step - item.from) / item.factor), button = article.querySelectorAll(".step")[place];
      if (button) button.click();
      else article.dispatchEvent(new CustomEvent("seek", { detail: place }));
    });
  }
}

function startItems() {
  if (!items.length) return;
  find("controls").hidden = false;
  find("plain").remove();
  const bind = (id, name) => find(id).addEventListener("input", (event) => {
    Object.assign(chosen, { [name]: event.target.value, many: AT_ONCE });
    showItems();
  });
  bind("show", "show");
  bind("order", "order");
  bind("text", "text");
  find("more").addEventListener("click", () => {
    const before = find("list").children.length;
    chosen.many += AT_ONCE;
    showItems();
    const next = find("list").children[before];
    if (next) { next.tabIndex = -1; next.focus(); }
  });
  find("all").addEventListener("click", () => { chosen.pair = null; showItems(); });
  const legend = find("legend");
  const entry = (text, paint) => {
    const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.setProperty("--c", paint);
    legend.append(make("li", {}, swatch, text));
  };
  const grey = data.labels.find((label, code) => kindOf[code] < 0);
  if (kinds.length <= 24) {
    if (grey !== undefined) entry(grey, "#8a9099");
    kinds.forEach((kind, k) => entry(kind, COLOURS[k % COLOURS.length]));
  }
  showItems();
  find("list").firstElementChild?.dispatchEvent(new CustomEvent("begin")); // one is open, to show what there is
}

function startFeatures() {
  const body = find("feature-rows");
  if (!body) return;
  const label = find("feature-label"), text = find("feature-text"), count = find("feature-count");
  find("feature-controls").hidden = false;
  const most = Math.max(...data.features.map((row) => Math.abs(row[2])), 1e-9);
  const show = () => {
    const words = text.value.trim().toLowerCase();
    const found = data.features.filter(([name, own]) => (!label.value || own === label.value)
      && (!words || data.names[name].toLowerCase().includes(words)));
    body.replaceChildren(...found.slice(0, 60).map(([name, own, weight]) => {
      const side = make("i", { class: weight < 0 ? "minus" : "plus" });
      side.style.width = `${(100 * Math.abs(weight)) / most}%`;
      return make("tr", {}, make("th", { scope: "row", text: data.names[name], title: data.names[name] }), make("td", { class: "name", text: own }),
        make("td", { text: signed(weight) }), make("td", {}, make("div", { class: "sides" }, side)));
    }));
    count.textContent = found.length === 0 ? "No feature fits." : `${Math.min(found.length, 60)} of ${found.length} that fit are listed.`;
  };
  label.addEventListener("input", show);
  text.addEventListener("input", show);
  show();
}

function startNavigation() {
  const links = [...document.querySelectorAll("nav a")];
  const watch = new IntersectionObserver((seen) => {
    for (const entry of seen) if (entry.isIntersecting) for (const link of links) {
      if (link.hash === `#${entry.target.id}`) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  for (const section of document.querySelectorAll("main > section")) watch.observe(section);
}

startTheme();
startConfusion();
startItems();
startGroups();
startFeatures();
startNavigation();
document.body.dataset.ready = String(items.length);
