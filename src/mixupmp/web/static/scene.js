// The view as a value: what the sliders say, and the link that says the same.
export const DEFAULTS = { predictive: "mixup-mp", ratio: 1, alpha: 1, variance: 4, members: 10, steps: 3000, seed: 0, beside: null, points: null };
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

const spelled = (ratio) => (ratio === Infinity ? "inf" : ratio);
export const forServer = ({ beside, ...scene }) => ({ ...scene, ratio: spelled(scene.ratio) });

// Points are kept to a hundredth, four bytes each: 12 bits for x, 12 for y, 3 for the class.
const encode = (points) => {
  const bytes = new Uint8Array(points.length * 4);
  const view = new DataView(bytes.buffer);
  points.forEach(([x, y, label], place) => {
    const across = Math.round(x * 100) + 1500, up = Math.round(y * 100) + 1500;
    view.setUint32(place * 4, ((across << 15) | (up << 3) | label) >>> 0);
  });
  return toText(bytes);
};
const toText = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
const toBytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));

const decode = (text) => {
  const bytes = toBytes(text);
  const view = new DataView(bytes.buffer);
  return Array.from({ length: Math.floor(bytes.length / 4) }, (_, place) => {
    const value = view.getUint32(place * 4);
    const limit = (number) => Math.min(15, Math.max(-15, (number - 1500) / 100));
    return [limit(value >>> 15), limit((value >>> 3) & 0xfff), value & 7];
  });
};

// Steps from each erased point to the next, seven bits in a byte; the eighth says that the step goes on.
const encodePlaces = (places) => {
  const bytes = [];
  places.forEach((place, k) => {
    let step = place - (k ? places[k - 1] : 0);
    for (; step > 127; step >>>= 7) bytes.push(128 | (step & 127));
    bytes.push(step);
  });
  return toText(bytes);
};
const decodePlaces = (text) => {
  const places = [];
  let step = 0, shift = 0, last = 0;
  for (const byte of toBytes(text)) {
    step |= (byte & 127) << shift;
    shift += 7;
    if (byte < 128) { places.push((last += step)); step = shift = 0; }
  }
  return places;
};

// Points as what was erased from the paper's clusters and drawn beside them, where that is shorter than all of them.
const pointWords = (points, clusters) => {
  const all = { points: encode(points) };
  if (!clusters) return all;
  const kept = new Set(points.map(String)), known = new Set(clusters.map(String));
  const erased = clusters.flatMap((point, place) => (kept.has(String(point)) ? [] : [place]));
  const edits = { erased: encodePlaces(erased), drawn: encode(points.filter((point) => !known.has(String(point)))) };
  return edits.erased.length + edits.drawn.length < all.points.length ? edits : all;
};
export const needsClusters = (text) => /(^|&)(erased|drawn)=/.test(text);

export const toLink = (scene, clusters) => {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(scene)) {
    if (name !== "points" && value !== DEFAULTS[name]) words.set(name, String(spelled(value)));
  }
  if (scene.points) for (const [name, value] of Object.entries(pointWords(scene.points, clusters))) words.set(name, value);
  return words.toString();
};

// What a link says; whatever it gets wrong stays as it is by default. The page's options say which predictives there are.
export const fromLink = (text, predictives, clusters) => {
  const scene = { ...DEFAULTS };
  const words = new URLSearchParams(text);
  if (predictives.includes(words.get("predictive"))) scene.predictive = words.get("predictive");
  for (const name of ["ratio", "beside"]) {
    const ratio = words.get(name) === "inf" ? Infinity : Number(words.get(name));
    if (words.has(name) && ratio >= 0) scene[name] = ratio;
  }
  for (const [name, [low, high]] of Object.entries(NUMBERS)) {
    const value = Number(words.get(name));
    if (words.has(name) && value >= low && value <= high) scene[name] = value;
  }
  try {
    if (words.get("points")) scene.points = decode(words.get("points"));
    else if (needsClusters(text) && clusters) {
      const erased = new Set(decodePlaces(words.get("erased") ?? ""));
      scene.points = [...clusters.filter((_, place) => !erased.has(place)), ...decode(words.get("drawn") ?? "")];
    }
  } catch { /* not points: the clusters it is */ }
  return scene;
};
