// What a page of rftlab does beyond showing: theme, filters, sorting, numbers under the pointer. Without it the page is whole.
"use strict";
(() => {
const root = document.documentElement;
const all = (query, inside = document) => [...inside.querySelectorAll(query)];
const FACTS = ["pair", "experiment", "level", "split"];
const OFF = FACTS.map((fact) => `.off-${fact}`).join();
root.classList.add("js");

// --- theme: the system's, until one asks for the other ---
const kept = (() => { try { return localStorage.getItem("rftlab-theme"); } catch { return null; } })();
const dark = () => getComputedStyle(root).colorScheme === "dark" ||
  (root.dataset.theme === undefined && matchMedia("(prefers-color-scheme: dark)").matches);
const button = document.getElementById("theme");
const named = () => { if (button) button.textContent = dark() ? "Light page" : "Dark page"; };
if (kept === "dark" || kept === "light") root.dataset.theme = kept;
button?.addEventListener("click", () => {
  root.dataset.theme = dark() ? "light" : "dark";
  try { localStorage.setItem("rftlab-theme", root.dataset.theme); } catch { /* a page from a disk may keep nothing */ }
  named();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", named);
named();

// --- filters: a box for each value of a fact; what carries another value goes ---
const boxes = all("#filters input");
function choose() {
  for (const fact of FACTS) {
    const own = boxes.filter((box) => box.name === fact);
    if (!own.length) continue;
    const on = new Set(own.filter((box) => box.checked).map((box) => box.value));
    const known = new Set(own.map((box) => box.value));
    for (const part of all(`main [data-${fact}], nav [data-${fact}]`)) {
      const value = part.dataset[fact];
      part.classList.toggle(`off-${fact}`, known.has(value) && !on.has(value));
    }
    const count = document.querySelector(`#filters [data-count="${fact}"]`);
    if (count) count.textContent = on.size === own.length ? "all" : `${on.size} of ${own.length}`;
  }
  for (const chart of all(".chart")) {
    chart.classList.toggle("empty", all(".panel", chart).every((panel) => panel.closest(OFF)));
  }
}

// the choice is the address's part behind #, so that a link has it: pair=a&pair=b; a fact without value shows none of it
function keep() {
  const chosen = new URLSearchParams();
  for (const fact of FACTS) {
    const own = boxes.filter((box) => box.name === fact), on = own.filter((box) => box.checked);
    if (on.length < own.length) (on.length ? on : [{ value: "" }]).forEach((box) => chosen.append(fact, box.value));
  }
  try { history.replaceState(null, "", `#${chosen}`); } catch { location.hash = String(chosen); }
}
function restore() {
  if (location.hash && !location.hash.includes("=")) return;  // a part of the page
  const chosen = new URLSearchParams(location.hash.slice(1));
  for (const fact of FACTS) {
    const own = boxes.filter((box) => box.name === fact);
    const wanted = chosen.getAll(fact).filter((value) => value === "" || own.some((box) => box.value === value));
    own.forEach((box) => { box.checked = !wanted.length || wanted.includes(box.value); });  // of another report: all
  }
  choose();
}
addEventListener("hashchange", restore);
restore();

boxes.forEach((box) => box.addEventListener("change", () => { choose(); keep(); }));
all("#filters [data-all]").forEach((press) => press.addEventListener("click", () => {
  const own = boxes.filter((box) => box.name === press.dataset.all);
  const on = !own.every((box) => box.checked);
  own.forEach((box) => { box.checked = on; });
  choose();
  keep();
}));
document.addEventListener("click", (event) => {
  all("#filters details[open]").forEach((one) => { if (!one.contains(event.target)) one.open = false; });
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { all("#filters details[open]").forEach((one) => { one.open = false; }); hide(); }
});
const tools = document.getElementById("tools");
if (tools) tools.hidden = false;

// --- sorting: a click on a heading; again, the other way ---
const text = (cell) => cell?.dataset.sort ?? cell?.textContent.trim() ?? "";
function number(cell) {
  const found = text(cell).replace(/[−–]/g, "-").replace(/,(?=\d{3})/g, "").match(/^[^\d+-]*([+-]?\d*\.?\d+(e[+-]?\d+)?)/i);
  return found ? Number(found[1]) : NaN;
}
function sort(table, column, heading) {
  const up = heading.getAttribute("aria-sort") !== "ascending";
  all("th", table.tHead).forEach((th) => th.removeAttribute("aria-sort"));
  heading.setAttribute("aria-sort", up ? "ascending" : "descending");
  const rows = [...table.tBodies[0].rows];
  const numbers = rows.map((row) => number(row.cells[column]));
  const numeric = numbers.filter(Number.isFinite).length > rows.length / 2 && !heading.dataset.words;
  const keys = new Map(rows.map((row, i) => [row, numeric ? numbers[i] : text(row.cells[column])]));
  rows.sort((a, b) => {
    const [x, y] = [keys.get(a), keys.get(b)];
    if (numeric && (Number.isNaN(x) || Number.isNaN(y))) return Number.isNaN(x) - Number.isNaN(y);
    return (up ? 1 : -1) * (numeric ? x - y : x.localeCompare(y));
  });
  table.tBodies[0].append(...rows);
}
for (const table of all("table.sortable")) {
  all("th", table.tHead).forEach((heading) => {
    const press = document.createElement("button");
    press.type = "button";
    press.className = "sort";
    press.append(...heading.childNodes);
    heading.append(press);
    press.addEventListener("click", () => sort(table, heading.cellIndex, heading));
  });
}

// --- numbers: of the mark next to the pointer, or by arrow keys ---
const tip = document.getElementById("tip");
const rowsOf = new WeakMap();
let hot = null, told = null;
const shown = (part) => part.getClientRects().length > 0;
function rows(series) {
  if (!rowsOf.has(series)) rowsOf.set(series, JSON.parse(series.dataset.v));
  return rowsOf.get(series);
}
function line(label, value, ends) {
  const between = ends.length === 2 && ends[0] !== null ? ` [${ends[0]}, ${ends[1]}]` : "";
  return value === null ? "" : `${label || "value"}: ${value}${between}`;
}
function tell(plot, series, at) {
  told = [plot, series, at];
  const row = rows(series)[at];
  const ends = row.slice(4), along = Number(series.dataset.a);
  const title = plot.closest(".panel").querySelector(".ptitle")?.textContent ?? "";
  const said = [title, series.dataset.n, line(plot.dataset.x, row[2], along ? [] : ends),
    line(plot.dataset.y, row[3], along ? ends : [])].filter(Boolean);
  tip.replaceChildren(...said.map((one) => Object.assign(document.createElement("div"), { textContent: one })));
  hot?.remove();
  hot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  hot.setAttribute("class", "hot");
  hot.setAttribute("r", "6");
  hot.setAttribute("cx", row[0]);
  hot.setAttribute("cy", row[1]);
  plot.append(hot);
  tip.hidden = false;
  const mark = hot.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const beside = own.width + mark.width + 28 < innerWidth / 2;  // else there is room above or below the mark alone
  const past = beside && mark.right + 10 + own.width > innerWidth;
  const left = beside ? (past ? mark.left - 10 - own.width : mark.right + 10) : mark.left - own.width / 2;
  const above = mark.top - own.height - 10;
  const top = beside ? mark.top - own.height / 2 : above < 4 ? mark.bottom + 10 : above;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - own.width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(top, innerHeight - own.height - 4))}px`;
}
function hide() {
  hot?.remove();
  hot = told = null;
  if (tip) tip.hidden = true;
}
function nearest(plot, event) {
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(plot.getScreenCTM().inverse());
  let best = null, least = 45 ** 2;
  for (const series of all("g.s", plot).filter(shown)) {
    rows(series).forEach(([x, y], i) => {
      const far = (x - at.x) ** 2 + (y - at.y) ** 2;
      if (far < least) { least = far; best = [series, i]; }
    });
  }
  return best;
}
const place = new WeakMap();
function step(plot, key) {
  const lines = all("g.s", plot).filter((one) => shown(one) && rows(one).length);
  if (!lines.length) return;
  let [i, at] = place.get(plot) ?? [0, -1];
  i = Math.min(i, lines.length - 1);
  if (key === "ArrowRight") at += 1;
  if (key === "ArrowLeft") at -= 1;
  if (key === "ArrowDown") i = (i + 1) % lines.length;
  if (key === "ArrowUp") i = (i + lines.length - 1) % lines.length;
  at = Math.max(0, Math.min(at, rows(lines[i]).length - 1));
  place.set(plot, [i, at]);
  tell(plot, lines[i], at);
}
for (const plot of tip ? all("svg.plot") : []) {
  const look = (event) => { const found = nearest(plot, event); if (found) tell(plot, ...found); else hide(); };
  plot.addEventListener("pointermove", look);
  plot.addEventListener("pointerdown", look);
  plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  plot.addEventListener("blur", hide);
  plot.setAttribute("tabindex", "0");
  plot.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) { event.preventDefault(); step(plot, event.key); }
  });
}
// what the keyboard asked for follows its mark, also where the browser itself scrolls the plot into view
function follow() {
  const mark = hot?.getBoundingClientRect();
  const seen = mark && mark.bottom > 0 && mark.top < innerHeight && mark.right > 0 && mark.left < innerWidth;
  if (seen && told[0] === document.activeElement) tell(...told); else hide();
}
document.addEventListener("scroll", follow, { passive: true });
})();
