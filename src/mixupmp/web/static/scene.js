// The view as a value: what the sliders say, and the link that says the same.
export const DEFAULTS = { predictive: "mixup-mp", ratio: 1, alpha: 1, variance: 4, members: 10, steps: 3000, seed: 0, points: null };
const PREDICTIVES = ["mixup-mp", "bayesian-bootstrap", "dp-mp-perturbed", "dp-mp-uniform", "warped-mixup", "smote", "gaussian-copula", "feature-swap"];
const NUMBERS = { alpha: [0.01, 100], variance: [0.01, 100], members: [1, 16], steps: [1, 20000], seed: [0, 2147483647] };

// r from 0 to infinity on a slider of finite length: its place is r / (1 + r), the share of simulated rows.
export const ratioAt = (place) => {
  if (place <= 0) return 0;
  if (place >= 1) return Infinity;
  return Number((place / (1 - place)).toPrecision(2));
};
export const placeOf = (ratio) => (ratio === Infinity ? 1 : ratio / (1 + ratio));

// alpha and the variance span decades.
export const decades = (low, high) => ({
  at: (place) => Number((low * (high / low) ** place).toPrecision(2)),
  of: (value) => Math.log(value / low) / Math.log(high / low),
});

export const forServer = (scene) => ({ ...scene, ratio: scene.ratio === Infinity ? "inf" : scene.ratio });

// Points are kept to a hundredth, four bytes each: 12 bits for x, 12 for y, 3 for the class.
const encode = (points) => {
  const bytes = new Uint8Array(points.length * 4);
  const view = new DataView(bytes.buffer);
  points.forEach(([x, y, label], place) => {
    const across = Math.round(x * 100) + 1500, up = Math.round(y * 100) + 1500;
    view.setUint32(place * 4, ((across << 15) | (up << 3) | label) >>> 0);
  });
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
};

const decode = (text) => {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Array.from({ length: Math.floor(bytes.length / 4) }, (_, place) => {
    const value = view.getUint32(place * 4);
    const limit = (number) => Math.min(15, Math.max(-15, (number - 1500) / 100));
    return [limit(value >>> 15), limit((value >>> 3) & 0xfff), value & 7];
  });
};

export const toLink = (scene) => {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(scene)) {
    if (name === "points") { if (value) words.set("points", encode(value)); }
    else if (value !== DEFAULTS[name]) words.set(name, value === Infinity ? "inf" : String(value));
  }
  return words.toString();
};

// What a link says; whatever it gets wrong stays as it is by default.
export const fromLink = (text) => {
  const scene = { ...DEFAULTS };
  const words = new URLSearchParams(text);
  if (PREDICTIVES.includes(words.get("predictive"))) scene.predictive = words.get("predictive");
  if (words.has("ratio")) {
    const ratio = words.get("ratio") === "inf" ? Infinity : Number(words.get("ratio"));
    if (ratio >= 0) scene.ratio = ratio;
  }
  for (const [name, [low, high]] of Object.entries(NUMBERS)) {
    const value = Number(words.get(name));
    if (words.has(name) && value >= low && value <= high) scene[name] = value;
  }
  try {
    if (words.get("points")) scene.points = decode(words.get("points"));
  } catch { /* not points: the clusters it is */ }
  return scene;
};
