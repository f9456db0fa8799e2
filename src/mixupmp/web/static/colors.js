// Colors that pictures share: viridis for uncertainty, and one hue for each class.
const STOPS = [
  [68, 1, 84], [72, 36, 117], [65, 68, 135], [53, 95, 141], [42, 120, 142], [33, 145, 140],
  [34, 168, 132], [68, 191, 112], [122, 209, 81], [189, 223, 38], [253, 231, 37],
];

// 256 colors from dark (0) to bright (255).
export const VIRIDIS = Array.from({ length: 256 }, (_, level) => {
  const place = (level / 255) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[low].map((value, channel) => Math.round(value + (place - low) * (STOPS[low + 1][channel] - value)));
});

export const viridisRamp = () =>
  `linear-gradient(90deg, ${STOPS.map((stop) => `rgb(${stop.join(" ")})`).join(", ")})`;

export const CLASSES = [
  [230, 85, 13], [49, 130, 206], [214, 51, 108], [49, 163, 84], [128, 90, 213], [183, 121, 31], [23, 162, 184], [113, 128, 150],
];

export const rgb = (color) => `rgb(${color.map(Math.round).join(" ")})`;

// The color of a row that is so much of each class.
export const blended = (shares) =>
  [0, 1, 2].map((channel) => shares.reduce((sum, share, k) => sum + share * CLASSES[k % CLASSES.length][channel], 0));

export const fromTheme = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
