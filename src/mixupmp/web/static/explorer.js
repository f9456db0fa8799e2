"use strict";
// Pick a set of results, a metric and methods: a dot and its standard error for each, and the same as a table.
const { sets, metrics, calibrated } = JSON.parse(document.getElementById("data").textContent);
const get = (id) => document.getElementById(id);
const form = get("controls"), chart = get("chart");
const BARS = 1; // standard errors to each side
// On a phone a name is above its dot, not beside it.
const phone = matchMedia("(max-width: 560px)");
const DESKTOP = { width: 900, left: 330, right: 80, row: 30, top: 14, bottom: 36, name: { x: 318, up: 0, end: "end", letters: 48 } };
const PHONE = { width: 350, left: 6, right: 56, row: 44, top: 14, bottom: 30, name: { x: 0, up: 17, end: "start", letters: 48 } };

const option = (value, text) => Object.assign(document.createElement("option"), { value, textContent: text });
const element = (name, attributes, text = "") => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
};
const current = () => sets[Number(get("set").value)];
const shortened = (name, letters) => (name.length > letters ? `${name.slice(0, letters - 1)}…` : name);
const nameOf = (line) => (line.group ? `${line.label} (${line.group})` : line.label);
const keyOf = () => get("metric").value + (form.elements.kind.value === "calibrated" ? calibrated : "");
const shown = (value, metric) => (value * metric.scale).toFixed(metric.digits);

// The address says what is shown, so that it can be sent; a page on disk may not change it everywhere.
const remember = () => {
  const words = new URLSearchParams({ set: current().name, metric: get("metric").value, kind: form.elements.kind.value });
  try { history.replaceState(null, "", `#${words}`); } catch { /* the view is as good without it */ }
};

function listMetrics(wanted) {
  const there = Object.keys(metrics).filter((name) => current().lines.some((line) => name in line.metrics));
  get("metric").replaceChildren(...there.map((name) => option(name, metrics[name].heading)));
  get("metric").value = there.includes(wanted) ? wanted : there.includes("nll") ? "nll" : there[0];
}

function listMethods() {
  get("methods").replaceChildren(...current().lines.map((line, place) => {
    const label = document.createElement("label");
    label.append(Object.assign(document.createElement("input"), { type: "checkbox", name: "method", value: place, checked: true }), ` ${nameOf(line)}`);
    return label;
  }));
}

function chosenLines() {
  const off = new Set([...form.querySelectorAll("[name=method]:not(:checked)")].map((box) => Number(box.value)));
  const key = keyOf(), { better } = metrics[get("metric").value];
  const lines = current().lines.filter((line, place) => !off.has(place) && key in line.metrics);
  if (!get("sorted").checked) return lines;
  return lines.toSorted((a, b) => (better === "higher" ? -1 : 1) * (a.metrics[key][0] - b.metrics[key][0]));
}

// Round numbers between two others, three to six of them.
function roundMarks(low, high) {
  const rough = (high - low || Math.abs(high) || 1) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough);
  const first = Math.ceil(low / step - 1e-9), count = Math.floor(high / step + 1e-9) - first + 1;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return Array.from({ length: Math.max(count, 0) }, (_, k) => (first + k) * step).map((value) => [value, value.toFixed(digits)]);
}

function drawChart(lines, key, metric) {
  const { width, left, right, row, top, bottom, name } = phone.matches ? PHONE : DESKTOP;
  const height = top + bottom + row * lines.length;
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  if (!lines.length) return chart.replaceChildren();
  const ends = lines.flatMap((line) => [-BARS, BARS].map((side) => metric.scale * (line.metrics[key][0] + side * line.metrics[key][1])));
  const low = Math.min(...ends), high = Math.max(...ends), room = (high - low || Math.abs(high) || 1) * 0.05;
  const across = (value) => left + ((value - low + room) / (high - low + 2 * room)) * (width - left - right);
  const parts = roundMarks(low - room, high + room).flatMap(([value, text]) => [
    element("line", { x1: across(value), x2: across(value), y1: top, y2: height - bottom, class: "grid" }),
    element("text", { x: across(value), y: height - bottom + 18, "text-anchor": "middle", class: "mark" }, text),
  ]);
  lines.forEach((line, place) => {
    const [mean, error, repeats] = line.metrics[key].map((value, k) => (k < 2 ? value * metric.scale : value));
    const y = top + row * (place + 0.5) + name.up / 2;
    parts.push(element("text", { x: name.x, y: y + 4 - name.up, "text-anchor": name.end, class: "name" }, shortened(nameOf(line), name.letters)));
    if (repeats > 1) parts.push(element("line", { x1: across(mean - BARS * error), x2: across(mean + BARS * error), y1: y, y2: y, class: "whisker" }));
    parts.push(element("circle", { cx: across(mean), cy: y, r: 5, class: "dot" }));
    parts.push(element("text", { x: width - right + 12, y: y + 4 }, shown(line.metrics[key][0], metric)));
  });
  return chart.replaceChildren(...parts);
}

function drawTable(lines, key, metric) {
  const row = (tag, cells) => {
    const made = document.createElement("tr");
    made.append(...cells.map((text, place) => Object.assign(document.createElement(place ? tag : "th"), { textContent: text, className: place ? "number" : "" })));
    return made;
  };
  get("table").tHead.replaceChildren(row("th", ["Method", metric.heading, "standard error", "repeats"]));
  get("table").tBodies[0].replaceChildren(...lines.map((line) => {
    const [mean, error, repeats] = line.metrics[key];
    return row("td", [nameOf(line), shown(mean, metric), repeats > 1 ? shown(error, metric) : "–", String(repeats)]);
  }));
}

function show() {
  const name = get("metric").value, metric = metrics[name], has = current().lines.some((line) => name + calibrated in line.metrics);
  form.querySelector("[value=calibrated]").disabled = !has;
  if (!has) form.elements.kind.value = "raw";
  const lines = chosenLines(), key = keyOf();
  const way = metric.better ? `, ${metric.better} is better` : "";
  get("said").textContent = lines.length ? `${metric.title}${way}; bars are one standard error over repeats.${has ? "" : " These results have no calibrated values."}` : "No method is chosen.";
  drawChart(lines, key, metric);
  drawTable(lines, key, metric);
  get("command").textContent = current().command ? `Made by: ${current().command}` : "";
}

get("set").replaceChildren(...sets.map((one, place) => option(place, one.name)));
const asked = new URLSearchParams(location.hash.slice(1));
const isCalibrated = (one) => one.lines.some((line) => "nll" + calibrated in line.metrics);
const wishes = [(one) => one.name === asked.get("set"), (one) => one.name.startsWith("comparison") && isCalibrated(one), isCalibrated];
get("set").value = Math.max(0, wishes.map((wish) => sets.findIndex(wish)).find((place) => place >= 0) ?? 0);
listMetrics(asked.get("metric"));
listMethods();
if (asked.get("kind") === "calibrated") form.elements.kind.value = "calibrated";
show();
form.addEventListener("input", ({ target }) => {
  if (target.id === "set") { listMetrics(get("metric").value); listMethods(); }
  show();
  remember();
});
phone.addEventListener("change", show);
form.addEventListener("submit", (event) => event.preventDefault());
