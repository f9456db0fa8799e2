// The playground: sliders and drawn points make a scene, the server trains it, the pictures follow.
import { CLASSES, fromTheme, rgb, viridisRamp } from "./colors.js";
import { LIMIT, drawFuture, drawLandscape, toPoint } from "./draw.js";
import { DEFAULTS, decades, forServer, fromLink, needsClusters, placeOf, ratioAt, toLink } from "./scene.js";
import { train } from "./stream.js";

const get = (id) => document.getElementById(id);
const controls = get("controls"), futureCanvas = get("future"), landscapeCanvas = get("landscape"), besideCanvas = get("beside-picture");
const options = [...controls.elements.predictive]; // as the server knows them
const optionOf = (name) => options.find(({ value }) => value === name).dataset;
const depends = (setting) => optionOf(scene.predictive).settings.split(" ").includes(setting);
const scales = { alpha: decades(0.05, 20), variance: decades(0.25, 64) };
const BRUSH = 0.9, SPRAY = 3, REACH = 1.2, MOST_POINTS = 3000;

let clusters = null; // the paper's, once they are known; a link may say only what was changed in them
const readLink = async () => {
  const text = location.hash.slice(1);
  if (needsClusters(text)) clusters ??= await (await fetch("clusters")).json();
  return fromLink(text, options.map(({ value }) => value), clusters);
};
let scene = await readLink();
let second = null; // the landscape of the second r
let view = null, future = [], seen = [], running = null, cursor = null, brush = 0, erasing = false, last = null;

// ---- what is shown -------------------------------------------------------------------------------------------------
let due = false;
const drawn = {};
// However many frames arrive, a picture is drawn once for each time the screen is.
const redraw = () => {
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; draw(); });
};
const draw = () => {
  const pointer = document.activeElement === futureCanvas ? cursor : null;
  if (drawn.future !== future || drawn.pointer !== pointer || drawn.theme !== fromTheme("--paper")) {
    drawFuture(futureCanvas, future, pointer);
    Object.assign(drawn, { future, pointer, theme: fromTheme("--paper") });
  }
  drawLandscape(landscapeCanvas, view, scene.points ?? seen, {
    boundaries: get("boundaries").checked, cursor: document.activeElement === landscapeCanvas ? cursor : null });
  if (scene.beside !== null) drawLandscape(besideCanvas, second, scene.points ?? seen, { boundaries: get("boundaries").checked, cursor: null });
};

const says = (ratio) => (ratio === Infinity ? "∞" : String(ratio));
const nameOf = ({ predictive, ratio }) => {
  if (predictive === "mixup-mp") return ratio === 0 ? "Deep ensemble (r = 0)" : ratio === Infinity ? "Mixup ensemble (r = ∞)" : `MixupMP, r = ${ratio}`;
  const { heading, settings } = optionOf(predictive);
  return settings.includes("ratio") ? `${heading}, r = ${says(ratio)}` : heading;
};

function showScene() {
  const { predictive } = scene;
  controls.elements.predictive.value = predictive;
  get("more-futures").open ||= get("more-futures").querySelector(`[value="${predictive}"]`) !== null;
  get("ratio").value = Math.round(100 * placeOf(scene.ratio));
  get("ratio-said").textContent = `r = ${says(scene.ratio)}`;
  const share = Math.round(100 * placeOf(scene.ratio));
  get("ratio-hint").textContent = scene.ratio === 0 ? "Only the observed rows: a deep ensemble."
    : scene.ratio === Infinity ? "Only simulated rows." : `${share}% of the future is simulated.`;
  get("compare").checked = scene.beside !== null;
  get("beside-row").hidden = besideCanvas.parentElement.hidden = scene.beside === null;
  get("pictures").classList.toggle("compare", scene.beside !== null);
  if (scene.beside !== null) {
    get("beside").value = Math.round(100 * placeOf(scene.beside));
    get("beside-said").textContent = `r = ${says(scene.beside)}`;
  }
  if (!depends("ratio")) get("ratio-hint").textContent = "The bootstrap simulates no rows.";
  for (const name of ["alpha", "variance"]) {
    get(name).value = Math.round(100 * scales[name].of(scene[name]));
    get(`${name}-said`).textContent = scene[name];
  }
  get("alpha-hint").textContent = scene.alpha < 0.3 ? "Blends stay close to one of the two rows." : scene.alpha > 4 ? "Blends are near half and half." : "";
  for (const name of ["members", "steps", "seed"]) {
    get(name).value = scene[name];
    get(`${name}-said`).textContent = Number(scene[name]).toLocaleString("en");
  }
  enable("ratio", depends("ratio"));
  for (const name of ["alpha", "variance"]) get(`${name}-row`).hidden = !depends(name);
}

const enable = (name, on) => {
  get(name).disabled = !on;
  get(`${name}-row`).classList.toggle("off", !on);
};

const percent = (value) => `${Math.round(100 * value)}%`;
function showProgress(header) {
  get("progress").value = header.step / header.steps;
  const diverged = header.diverged.length ? ` ${header.diverged.length} of ${scene.members} members diverged.` : "";
  if (!header.members) { get("status").textContent = "All members diverged: the points may lie too far apart for this rate."; return; }
  const progress = `Step ${header.step.toLocaleString("en")} of ${header.steps.toLocaleString("en")}. ` +
    `Mean uncertainty ${percent(header.mean_uncertainty)} over the square, ${percent(header.mean_uncertainty_on_data)} on the data.${diverged}`;
  get("status").textContent = progress;
  get("landscape-title").textContent = `${nameOf(scene)}: uncertainty ${percent(header.mean_uncertainty)} over the square, ${percent(header.mean_uncertainty_on_data)} on the data`;
  landscapeCanvas.setAttribute("aria-label", `Uncertainty landscape. ${get("landscape-title").textContent}.`);
}

// ---- training ------------------------------------------------------------------------------------------------------
let queued = null;
const retrain = (wait = 150) => {
  history.replaceState(null, "", `#${toLink(scene, clusters)}`);
  clearTimeout(queued);
  queued = setTimeout(start, wait);
};

// The first r, then the second; what was trained already with the same settings stays.
const trained = { first: null, second: null };
const keyOf = (ratio) => JSON.stringify(forServer({ ...scene, ratio }));

async function start(again = false) {
  if (again === true) trained.first = trained.second = null;
  running?.abort();
  const mine = (running = new AbortController());
  get("pause").textContent = "Stop";
  document.body.dataset.state = "training";
  try {
    for (const [name, ratio, receive] of [["first", scene.ratio, take], ["second", scene.beside, takeSecond]]) {
      const key = keyOf(ratio);
      if (ratio === null || trained[name] === key) continue;
      trained[name] = null;
      for await (const { header, body } of train(forServer({ ...scene, ratio }), mine.signal)) {
        if (mine !== running) return;
        receive(header, body);
      }
      trained[name] = key;
    }
    document.body.dataset.state = "done";
    get("pause").textContent = "Train again";
  } catch (error) {
    if (mine !== running || error.name === "AbortError") return;
    document.body.dataset.state = "failed";
    get("status").textContent = error.message;
    get("pause").textContent = "Train again";
  }
}

const viewOf = ({ members, classes }, body) => {
  const { side } = last, cells = side * side;
  return { side, members, classes, levels: body.subarray(0, cells), leads: new Int8Array(body.buffer, body.byteOffset + 2 * cells) };
};

function takeSecond(header, body) {
  if (!header.members) return;
  second = viewOf(header, body);
  get("progress").value = header.step / header.steps;
  const title = `${nameOf({ ...scene, ratio: scene.beside })}: uncertainty ${percent(header.mean_uncertainty)} over the square, ${percent(header.mean_uncertainty_on_data)} on the data`;
  get("beside-picture-title").textContent = title;
  besideCanvas.setAttribute("aria-label", `Uncertainty landscape. ${title}.`);
  redraw();
}

function take(header, body) {
  if (header.snippet) {
    get("snippet").textContent = header.snippet;
    ({ future, seen } = header);
    if (!scene.points) clusters = seen;
    last = { side: header.side };
    const simulated = future.length - (scene.ratio === Infinity ? 0 : seen.length);
    get("future-title").textContent = simulated > 0 ? `A future: ${scene.ratio === Infinity ? "no" : seen.length} observed rows, ${simulated} simulated` : `A future: the ${seen.length} observed rows, and no others`;
  }
  if (header.members) view = viewOf(header, body);
  showProgress(header);
  redraw();
  document.body.dataset.frames = Number(document.body.dataset.frames ?? 0) + 1;
  document.body.dataset.first ??= Math.round(performance.now());
}

// ---- sliders -------------------------------------------------------------------------------------------------------
controls.addEventListener("input", ({ target }) => {
  const value = Number(target.value);
  if (target.name === "predictive") scene.predictive = target.value;
  else if (target.name === "ratio") scene.ratio = ratioAt(value / 100);
  else if (target.name === "beside") scene.beside = ratioAt(value / 100);
  else if (target.name === "compare") scene.beside = target.checked ? (scene.ratio === 0 ? 1 : 0) : null;
  else if (target.name in scales) scene[target.name] = scales[target.name].at(value / 100);
  else if (["members", "steps", "seed"].includes(target.name)) scene[target.name] = value;
  else return;
  showScene();
  retrain();
});
controls.addEventListener("submit", (event) => event.preventDefault());
get("boundaries").addEventListener("change", redraw);
get("pause").addEventListener("click", () => {
  if (document.body.dataset.state !== "training") { start(true); return; }
  running?.abort();
  document.body.dataset.state = "stopped";
  get("pause").textContent = "Train again";
});

// ---- drawing -------------------------------------------------------------------------------------------------------
const round = (value) => Math.round(value * 100) / 100;
const edit = () => {
  scene.points ??= seen.map(([x, y, label]) => [x, y, label]);
  return scene.points;
};
const near = ([x, y], [a, b]) => (x - a) ** 2 + (y - b) ** 2 < REACH ** 2;
function touch(place, spread) {
  const points = edit();
  if (erasing) scene.points = points.filter((point) => !near(point, place));
  else if (points.length < MOST_POINTS) points.push([round(place[0] + spread()), round(place[1] + spread()), brush].map((v, k) => (k < 2 ? Math.min(LIMIT, Math.max(-LIMIT, v)) : v)));
  else get("status").textContent = `There is room for ${MOST_POINTS} points.`;
}
const edited = (wait) => {
  seen = scene.points;
  redraw();
  if (scene.points.length) retrain(wait);
  else { running?.abort(); view = null; future = []; redraw(); get("status").textContent = "Draw points of at least two classes."; history.replaceState(null, "", `#${toLink(scene, clusters)}`); }
};

for (const canvas of [futureCanvas, landscapeCanvas]) {
  let down = false;
  const spray = (event) => {
    const place = toPoint(canvas, event);
    for (let drop = 0; drop < (erasing ? 1 : SPRAY); drop++) touch(place, () => (Math.random() + Math.random() - 1) * BRUSH);
    seen = scene.points;
    redraw();
  };
  canvas.addEventListener("pointerdown", (event) => { down = true; canvas.setPointerCapture(event.pointerId); cursor = null; spray(event); });
  canvas.addEventListener("pointermove", (event) => { if (down) spray(event); });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { if (down) { down = false; edited(100); } });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    cursor ??= [0, 0];
    if (moves[event.key]) cursor = cursor.map((value, k) => Math.min(LIMIT, Math.max(-LIMIT, value + moves[event.key][k] * (event.shiftKey ? 3 : 0.6))));
    else if (event.key === " " || event.key === "Enter") { touch(cursor, () => 0); edited(600); }
    else if (event.key === "Delete" || event.key === "Backspace") { scene.points = edit().filter((point) => !near(point, cursor)); edited(600); }
    else return;
    event.preventDefault();
    redraw();
  });
  for (const name of ["focus", "blur"]) canvas.addEventListener(name, redraw);
}

CLASSES.slice(0, 5).forEach((color, k) => {
  const button = document.createElement("button");
  button.type = "button";
  button.setAttribute("aria-label", `Class ${k + 1}`);
  button.setAttribute("aria-pressed", String(k === 0));
  const dot = document.createElement("span");
  dot.style.background = rgb(color);
  button.append(dot);
  button.addEventListener("click", () => choose(k, false));
  get("brushes").append(button);
});
function choose(k, erase) {
  brush = k;
  erasing = erase;
  [...get("brushes").children].forEach((button, place) => button.setAttribute("aria-pressed", String(!erase && place === k)));
  get("erase").setAttribute("aria-pressed", String(erase));
}
get("erase").addEventListener("click", () => choose(brush, !erasing));
get("clear").addEventListener("click", () => { scene.points = []; edited(0); });
get("reset").addEventListener("click", () => { scene.points = DEFAULTS.points; retrain(0); });

// ---- links and copies ----------------------------------------------------------------------------------------------
async function copy(text, button, done) {
  const before = button.textContent;
  try { await navigator.clipboard.writeText(text); button.textContent = done; }
  catch { button.textContent = "Copying is not allowed here"; }
  setTimeout(() => { button.textContent = before; }, 1500);
}
get("link").addEventListener("click", ({ target }) => copy(location.href, target, "Link copied"));
get("copy").addEventListener("click", ({ target }) => copy(get("snippet").textContent, target, "Copied"));
addEventListener("hashchange", async () => { scene = await readLink(); showScene(); start(); });
document.addEventListener("themechange", redraw);

get("ramp").style.background = viridisRamp();
showScene();
redraw();
start();
