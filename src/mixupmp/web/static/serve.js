// The server's page: send an image or a row, show who votes for what.
const get = (id) => document.getElementById(id);
const pad = get("pad"), context = pad.getContext("2d");
let about = null, token = "", asked = 0;

const make = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};
// By the style object and not by an attribute, which the page's Content-Security-Policy forbids.
const placed = (kind, side, share) => { const mark = make("span", { class: kind }); mark.style[side] = `${100 * share}%`; return mark; };
const percent = (value) => (value >= 0.9995 && value < 1 ? ">99.9%" : `${(100 * value).toFixed(value > 0.1 && value < 0.95 ? 0 : 1)}%`);

async function ask(path, options = {}) {
  const headers = { ...(options.headers ?? {}), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  const answer = await response.json().catch(() => ({ detail: `The server answered ${response.status}.` }));
  if (response.status === 401) get("token-form").hidden = false;
  if (!response.ok) throw new Error(answer.detail ?? `The server answered ${response.status}.`);
  return answer;
}

const sentences = () => about.takes === "sentences";

async function start() {
  try {
    about = await ask("metadata");
  } catch (error) {
    get("about").textContent = error.message;
    return;
  }
  get("token-form").hidden = true;
  const { there, wanted } = about.networks;
  const short = there < wanted ? ` (${there} of ${wanted} networks)` : "";
  get("about").textContent = `${about.title}: ${about.members} members${short}, ${about.classes.length} classes, inputs ${about.input_shape.join(" × ")}, ${about.runtime}.`;
  get("guarantee").textContent = `What sets and abstention guarantee: ${about.decisions.guarantee}.`;
  const images = about.input_shape.length === 3;
  get("image-inputs").hidden = !images;
  get("row-inputs").hidden = images;
  if (!images) get("detail").textContent = sentences() ? "Type a sentence and press Predict." : "Type a row and press Predict.";
  if (sentences()) get("row-label").textContent = "A sentence";
  if (about.takes === "sounds") get("image-heading").textContent = "Choose or drop a WAV file, or draw its spectrogram";
  clearPad();
  const examples = images ? await ask("examples") : [];
  get("examples-part").hidden = !examples.length;
  get("examples").replaceChildren(...examples.map(({ image, label }) => {
    const button = make("button", { type: "button", "aria-label": `Try a held-out ${label}` }, make("img", { src: image, alt: "" }));
    button.addEventListener("click", async () => { const blob = await (await fetch(image)).blob(); show(blob); predictImage(blob, label); });
    return make("li", {}, button);
  }));
}

// ---- asking --------------------------------------------------------------------------------------------------------
const predictImage = (blob, truth) => predict("predict?resize=true", { body: blob, headers: { "Content-Type": blob.type || "image/png" } }, truth);

async function predict(path, options, truth) {
  const mine = ++asked;
  document.body.dataset.state = "asking";
  try {
    const answer = await ask(path, { method: "POST", ...options });
    if (mine === asked) showVotes(answer.predictions[0], answer, truth);
  } catch (error) {
    if (mine === asked) { get("verdict").textContent = "No answer"; get("detail").textContent = error.message; }
  }
  if (mine === asked) document.body.dataset.state = "answered";
}

function showVotes(row, answer, truth) {
  const votes = row.members.map((member) => member.indexOf(Math.max(...member)));
  const agree = votes.filter((vote) => vote === row.number).length;
  get("verdict").classList.toggle("abstains", !row.accepted);
  get("verdict").textContent = row.accepted ? `It says ${row.predicted}, ${percent(row.confidence)}` : `It abstains: its best guess is ${row.predicted}, ${percent(row.confidence)}`;
  const known = truth === undefined ? "" : ` The label is ${truth}.`;
  get("detail").textContent = `${agree} of ${votes.length} members vote for ${row.predicted}.${known}`;
  // The likeliest three, and whatever else has a vote or is worth a percent.
  const order = row.probabilities.map((_, k) => k).sort((a, b) => row.probabilities[b] - row.probabilities[a])
    .filter((k, place) => place < 3 || votes.includes(k) || row.probabilities[k] >= 0.01).slice(0, 12);
  get("bars").replaceChildren(...order.map((k) => {
    const track = make("div", { class: "track" }, placed("mean", "width", row.probabilities[k]),
      ...row.members.map((member) => placed("tick", "left", member[k])));
    return make("tr", k === row.number ? { class: "top" } : {}, make("th", { scope: "row" }, answer.classes[k]), make("td", { class: "bars" }, track),
      make("td", { class: "number" }, percent(row.probabilities[k])), make("td", { class: "number" }, String(votes.filter((vote) => vote === k).length)));
  }));
  get("table").hidden = get("facts").hidden = false;
  const facts = { "Prediction set": `${row.set.join(", ")} (coverage ${percent(answer.coverage)})`, Entropy: `${row.entropy.toFixed(3)} nats`,
    "Mutual information": `${row.mutual_information.toFixed(3)} nats, from members that disagree` };
  if (row.p_value !== null) facts.Familiarity = `${row.flagged ? "flagged: " : ""}${percent(row.p_value)} of the held-out rows are as strange`;
  get("facts").replaceChildren(...Object.entries(facts).flatMap(([name, words]) => [make("dt", {}, name), make("dd", {}, words)]));
}

// ---- the pad -------------------------------------------------------------------------------------------------------
function clearPad() {
  context.fillStyle = "#000";
  context.fillRect(0, 0, pad.width, pad.height);
}

async function show(blob) {
  try {
    const image = await createImageBitmap(blob);
    clearPad();
    context.imageSmoothingEnabled = image.width > pad.width;
    const scale = Math.min(pad.width / image.width, pad.height / image.height);
    context.drawImage(image, (pad.width - image.width * scale) / 2, (pad.height - image.height * scale) / 2, image.width * scale, image.height * scale);
  } catch { /* not a picture: the server says so */ }
}

const take = (file) => { if (file) { show(file); predictImage(file); } };
let down = false, due = null;
const stroke = (event, from) => {
  const box = pad.getBoundingClientRect();
  const at = [((event.clientX - box.left) / box.width) * pad.width, ((event.clientY - box.top) / box.height) * pad.height];
  Object.assign(context, { strokeStyle: "#fff", lineWidth: pad.width / 11, lineCap: "round", lineJoin: "round" });
  context.beginPath();
  context.moveTo(...(from ?? at));
  context.lineTo(...at);
  context.stroke();
  clearTimeout(due);
  due = setTimeout(() => pad.toBlob((blob) => predictImage(blob), "image/png"), 250);
  return at;
};
let last = null;
pad.addEventListener("pointerdown", (event) => { down = true; pad.setPointerCapture(event.pointerId); last = stroke(event, null); });
pad.addEventListener("pointermove", (event) => { if (down) last = stroke(event, last); });
for (const name of ["pointerup", "pointercancel"]) pad.addEventListener(name, () => { down = false; });
get("clear").addEventListener("click", () => { clearPad(); ++asked; get("verdict").textContent = "No prediction yet"; get("detail").textContent = "Draw on the pad, drop an image on it, or choose a file."; get("table").hidden = get("facts").hidden = true; });
get("file").addEventListener("change", ({ target }) => { take(target.files[0]); target.value = ""; });
for (const name of ["dragenter", "dragover"]) get("drop").addEventListener(name, (event) => { event.preventDefault(); get("drop").classList.add("over"); });
for (const name of ["dragleave", "drop"]) get("drop").addEventListener(name, (event) => { event.preventDefault(); get("drop").classList.remove("over"); });
get("drop").addEventListener("drop", (event) => take(event.dataTransfer.files[0]));
get("row-inputs").addEventListener("submit", (event) => {
  event.preventDefault();
  const cell = (text) => text === "" ? null : Number.isNaN(Number(text)) ? text : Number(text);
  const cells = () => get("row").value.split(/[,;\t]/).map((text) => cell(text.trim()));
  const numbers = () => get("row").value.split(/[\s,;]+/).filter(Boolean).map(Number);
  predict("predict", { body: JSON.stringify({ inputs: [sentences() ? get("row").value : about.takes === "columns" ? cells() : numbers()] }), headers: { "Content-Type": "application/json" } });
});
get("token-form").addEventListener("submit", (event) => { event.preventDefault(); token = get("token").value; start(); });
start();
