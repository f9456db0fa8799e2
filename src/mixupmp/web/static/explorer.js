"use strict";
// Pick a set of results, a metric and methods: a dot and its standard error for each, and the same as a table.
const { sets, metrics, calibrated } = JSON.parse(document.getElementById("data").textContent);
const get = (id) => document.getElementById(id);
const form = get("controls"), chart = get("chart");
const BARS = 1; // standard errors to each side
const WIDTH = 900, LEFT = 270, RIGHT = 90, ROW = 30, TOP = 14, BOTTOM = 36;

const option = (value, text) => Object.assign(document.createElement("option"), { value, textContent: text });
const element = (name, attributes, text = "") => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
};
const current = () => sets[Number(get("set").value)];
// What fits beside the dots.
const shortened = (name) => (name.length > 38 ? `${name.slice(0, 37)}…` : name);
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

function drawChart(lines, key, metric) {
  const height = TOP + BOTTOM + ROW * lines.length;
  chart.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
  const ends = lines.flatMap((line) => [-BARS, BARS].map((side) => line.metrics[key][0] + side * line.metrics[key][1]));
  const low = Math.min(...ends), high = Math.max(...ends), room = (high - low || Math.abs(high) || 1) * 0.05;
  const across = (value) => LEFT + ((value - low + room) / (high - low + 2 * room)) * (WIDTH - LEFT - RIGHT);
  const marks = [0, 1, 2, 3, 4].map((k) => low + ((high - low) * k) / 4);
  const parts = marks.flatMap((value) => [
    element("line", { x1: across(value), x2: across(value), y1: TOP, y2: height - BOTTOM, class: "grid" }),
    element("text", { x: across(value), y: height - BOTTOM + 18, "text-anchor": "middle" }, shown(value, metric)),
  ]);
  lines.forEach((line, place) => {
    const [mean, error, repeats] = line.metrics[key], y = TOP + ROW * (place + 0.5);
    parts.push(element("text", { x: LEFT - 12, y: y + 4, "text-anchor": "end" }, shortened(nameOf(line))));
    if (repeats > 1) parts.push(element("line", { x1: across(mean - BARS * error), x2: across(mean + BARS * error), y1: y, y2: y, class: "whisker" }));
    parts.push(element("circle", { cx: across(mean), cy: y, r: 5, class: "dot" }));
    parts.push(element("text", { x: WIDTH - RIGHT + 12, y: y + 4 }, shown(mean, metric)));
  });
  chart.replaceChildren(...parts);
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
const place = sets.findIndex((one) => one.name === asked.get("set"));
get("set").value = Math.max(0, place < 0 ? sets.findIndex((one) => one.name.startsWith("comparison")) : place);
listMetrics(asked.get("metric"));
listMethods();
if (asked.get("kind") === "calibrated") form.elements.kind.value = "calibrated";
show();
form.addEventListener("input", ({ target }) => {
  if (target.id === "set") { listMetrics(get("metric").value); listMethods(); }
  show();
  remember();
});
form.addEventListener("submit", (event) => event.preventDefault());
