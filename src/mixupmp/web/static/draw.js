// The two pictures. Both show the square [-limit, limit]^2 with y upwards.
import { CLASSES, VIRIDIS, blended, fromTheme, rgb } from "./colors.js";

export const LIMIT = 15;
const toPixel = (canvas, x, y) => [((x + LIMIT) / (2 * LIMIT)) * canvas.width, ((LIMIT - y) / (2 * LIMIT)) * canvas.height];
export const toPoint = (canvas, event) => {
  const box = canvas.getBoundingClientRect();
  const part = (value) => Math.min(LIMIT, Math.max(-LIMIT, value));
  return [
    part(((event.clientX - box.left) / box.width) * 2 * LIMIT - LIMIT),
    part(LIMIT - ((event.clientY - box.top) / box.height) * 2 * LIMIT),
  ];
};

export function drawFuture(canvas, rows, cursor) {
  const context = canvas.getContext("2d");
  context.fillStyle = fromTheme("--paper");
  context.fillRect(0, 0, canvas.width, canvas.height);
  drawAxes(context, canvas);
  const heaviest = rows.reduce((most, row) => Math.max(most, row[2]), 0.001);
  // Weights of one are small dots; where weights are drawn, area follows them.
  for (const row of rows) {
    const [x, y] = toPixel(canvas, row[0], row[1]);
    const radius = Math.min(14, 3.2 * Math.sqrt(Math.max(row[2], 0)));
    if (radius < 0.3) continue;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.globalAlpha = heaviest > 4 ? 0.55 : 0.7;
    context.fillStyle = rgb(blended(row.slice(3)));
    context.fill();
  }
  context.globalAlpha = 1;
  drawCursor(context, canvas, cursor);
}

function drawAxes(context, canvas) {
  context.strokeStyle = fromTheme("--line");
  context.lineWidth = 1;
  for (const value of [-10, -5, 0, 5, 10]) {
    const [x, y] = toPixel(canvas, value, value);
    context.beginPath();
    context.moveTo(x, 0); context.lineTo(x, canvas.height);
    context.moveTo(0, y); context.lineTo(canvas.width, y);
    context.stroke();
  }
}

const patch = document.createElement("canvas");

export function drawLandscape(canvas, view, seen, options) {
  const context = canvas.getContext("2d");
  if (view) {
    const { side } = view;
    patch.width = patch.height = side;
    const image = new ImageData(side, side);
    for (let row = 0; row < side; row++) {
      for (let column = 0; column < side; column++) {
        const color = VIRIDIS[view.levels[row * side + column]];
        const place = ((side - 1 - row) * side + column) * 4;
        image.data.set(color, place);
        image.data[place + 3] = 255;
      }
    }
    patch.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = true;
    context.imageSmoothingQuality = "high";
    context.drawImage(patch, 0, 0, canvas.width, canvas.height);
    if (options.boundaries) drawBoundaries(context, canvas, view);
  } else {
    context.fillStyle = fromTheme("--raised");
    context.fillRect(0, 0, canvas.width, canvas.height);
  }
  context.drawImage(dotsOf(canvas, seen), 0, 0);
  drawCursor(context, canvas, options.cursor);
}

// The seen rows, drawn once for as long as they stay the same.
const dots = document.createElement("canvas");
let dotted = null;
function dotsOf(canvas, seen) {
  const key = `${seen.length} ${seen.at(-1)} ${seen[0]} ${canvas.width}`;
  if (key === dotted) return dots;
  dotted = key;
  dots.width = canvas.width;
  dots.height = canvas.height;
  const context = dots.getContext("2d");
  const radius = seen.length > 400 ? 2.4 : 4;
  for (const [x, y, label] of seen) {
    const [across, down] = toPixel(canvas, x, y);
    context.beginPath();
    context.arc(across, down, radius, 0, 2 * Math.PI);
    context.fillStyle = rgb(CLASSES[label]);
    context.fill();
    context.strokeStyle = "rgb(255 255 255 / .8)";
    context.lineWidth = seen.length > 400 ? 0.4 : 0.8;
    context.stroke();
  }
  return dots;
}

// Where a member's class changes: the zero line of each class's lead, by marching squares.
function drawBoundaries(context, canvas, view) {
  const { side, members, classes, leads } = view;
  const cells = side * side;
  const size = canvas.width / side;
  const at = (column, row) => [(column + 0.5) * size, canvas.height - (row + 0.5) * size];
  context.lineWidth = 1.4;
  context.strokeStyle = "rgb(255 255 255 / .6)";
  for (let member = 0; member < members; member++) {
    context.beginPath();
    for (let k = 0; k < classes; k++) {
      const start = (member * classes + k) * cells;
      for (let row = 0; row < side - 1; row++) {
        for (let column = 0; column < side - 1; column++) {
          const place = start + row * side + column;
          const a = leads[place], b = leads[place + 1], c = leads[place + side + 1], d = leads[place + side];
          const kind = (a > 0) | ((b > 0) << 1) | ((c > 0) << 2) | ((d > 0) << 3);
          if (kind === 0 || kind === 15) continue;
          const cut = { s: () => at(column + a / (a - b), row), e: () => at(column + 1, row + b / (b - c)),
            n: () => at(column + d / (d - c), row + 1), w: () => at(column, row + a / (a - d)) };
          for (const [from, to] of SEGMENTS[kind]) {
            context.moveTo(...cut[from]());
            context.lineTo(...cut[to]());
          }
        }
      }
    }
    context.stroke();
  }
}

const SEGMENTS = {
  1: [["w", "s"]], 2: [["s", "e"]], 3: [["w", "e"]], 4: [["e", "n"]], 5: [["w", "n"], ["s", "e"]], 6: [["s", "n"]], 7: [["w", "n"]],
  8: [["n", "w"]], 9: [["n", "s"]], 10: [["s", "w"], ["n", "e"]], 11: [["n", "e"]], 12: [["e", "w"]], 13: [["e", "s"]], 14: [["s", "w"]],
};

function drawCursor(context, canvas, cursor) {
  if (!cursor) return;
  const [x, y] = toPixel(canvas, ...cursor);
  for (const [color, width] of [["#000", 4], ["#fff", 2]]) {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x - 10, y); context.lineTo(x + 10, y);
    context.moveTo(x, y - 10); context.lineTo(x, y + 10);
    context.stroke();
  }
}
