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
  const pen = canvas.getContext("2d");
  pen.fillStyle = fromTheme("--paper");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  drawAxes(pen, canvas);
  const heaviest = rows.reduce((most, row) => Math.max(most, row[2]), 0.001);
  // Weights of one are small dots; where weights are drawn, area follows them.
  for (const row of rows) {
    const [x, y] = toPixel(canvas, row[0], row[1]);
    const radius = Math.min(14, 3.2 * Math.sqrt(Math.max(row[2], 0)));
    if (radius < 0.3) continue;
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.globalAlpha = heaviest > 4 ? 0.55 : 0.7;
    pen.fillStyle = rgb(blended(row.slice(3)));
    pen.fill();
  }
  pen.globalAlpha = 1;
  drawCursor(pen, canvas, cursor);
}

function drawAxes(pen, canvas) {
  pen.strokeStyle = fromTheme("--line");
  pen.lineWidth = 1;
  for (const value of [-10, -5, 0, 5, 10]) {
    const [x, y] = toPixel(canvas, value, value);
    pen.beginPath();
    pen.moveTo(x, 0); pen.lineTo(x, canvas.height);
    pen.moveTo(0, y); pen.lineTo(canvas.width, y);
    pen.stroke();
  }
}

const patch = document.createElement("canvas");

export function drawLandscape(canvas, view, seen, options) {
  const pen = canvas.getContext("2d");
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
    pen.imageSmoothingEnabled = true;
    pen.imageSmoothingQuality = "high";
    pen.drawImage(patch, 0, 0, canvas.width, canvas.height);
    if (options.boundaries) drawBoundaries(pen, canvas, view);
  } else {
    pen.fillStyle = fromTheme("--raised");
    pen.fillRect(0, 0, canvas.width, canvas.height);
  }
  pen.drawImage(dotsOf(canvas, seen), 0, 0);
  drawCursor(pen, canvas, options.cursor);
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
  const pen = dots.getContext("2d");
  const radius = seen.length > 400 ? 2.4 : 4;
  for (const [x, y, label] of seen) {
    const [across, down] = toPixel(canvas, x, y);
    pen.beginPath();
    pen.arc(across, down, radius, 0, 2 * Math.PI);
    pen.fillStyle = rgb(CLASSES[label]);
    pen.fill();
    pen.strokeStyle = "rgb(255 255 255 / .8)";
    pen.lineWidth = seen.length > 400 ? 0.4 : 0.8;
    pen.stroke();
  }
  return dots;
}

// Where a member's class changes: the zero line of each class's lead, by marching squares.
function drawBoundaries(pen, canvas, view) {
  const { side, members, classes, leads } = view;
  const cells = side * side;
  const size = canvas.width / side;
  const at = (column, row) => [(column + 0.5) * size, canvas.height - (row + 0.5) * size];
  pen.lineWidth = 1.4;
  pen.strokeStyle = "rgb(255 255 255 / .6)";
  for (let member = 0; member < members; member++) {
    pen.beginPath();
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
            pen.moveTo(...cut[from]());
            pen.lineTo(...cut[to]());
          }
        }
      }
    }
    pen.stroke();
  }
}

const SEGMENTS = {
  1: [["w", "s"]], 2: [["s", "e"]], 3: [["w", "e"]], 4: [["e", "n"]], 5: [["w", "n"], ["s", "e"]], 6: [["s", "n"]], 7: [["w", "n"]],
  8: [["n", "w"]], 9: [["n", "s"]], 10: [["s", "w"], ["n", "e"]], 11: [["n", "e"]], 12: [["e", "w"]], 13: [["e", "s"]], 14: [["s", "w"]],
};

function drawCursor(pen, canvas, cursor) {
  if (!cursor) return;
  const [x, y] = toPixel(canvas, ...cursor);
  for (const [color, width] of [["#000", 4], ["#fff", 2]]) {
    pen.strokeStyle = color;
    pen.lineWidth = width;
    pen.beginPath();
    pen.moveTo(x - 10, y); pen.lineTo(x + 10, y);
    pen.moveTo(x, y - 10); pen.lineTo(x, y + 10);
    pen.stroke();
  }
}
