// What all charts need: a canvas of the right size, colours of the theme, axes.

/** Sizes a canvas to its place on the page and to the pixels of the screen. */
export function prepare(canvas) {
  const ratio = Math.min(devicePixelRatio || 1, 3);
  const { clientWidth: width, clientHeight: height } = canvas;
  const [pixelsWide, pixelsHigh] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== pixelsWide || canvas.height !== pixelsHigh) {
    canvas.width = pixelsWide;
    canvas.height = pixelsHigh;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
  pen.textBaseline = "middle";
  pen.lineJoin = "round";
  return { pen, width, height };
}

const NAMES = [
  "ink", "soft", "grid", "faint", "accent", "band", "truth", "alarm", "up", "down", "card",
  "c0", "c1", "c2", "c3", "c4", "c5",
];
let known = null;

/** The colours of the theme by their names in style.css. */
export function colours() {
  if (known === null) {
    const style = getComputedStyle(document.documentElement);
    known = Object.fromEntries(
      NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
    );
    known.series = [known.c0, known.c1, known.c2, known.c3, known.c4, known.c5];
  }
  return known;
}

addEventListener("themechange", () => {
  known = null;
});

/** A linear map from [low, high] to [from, to]. */
export function scale(low, high, from, to) {
  const factor = (to - from) / (high - low || 1);
  return (value) => from + (value - low) * factor;
}

export function line(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

/** A line that ends crisp on the pixels of the screen. */
export function crisp(value) {
  return Math.round(value) + 0.5;
}

export function withAlpha(pen, alpha, work) {
  const before = pen.globalAlpha;
  pen.globalAlpha = before * alpha;
  work();
  pen.globalAlpha = before;
}

/** Text on a plate of the card's colour, so that it can be read on any ground. */
export function plate(pen, text, x, y, colour, align = "left") {
  const wide = pen.measureText(text).width + 8;
  const left = align === "left" ? x : align === "right" ? x - wide : x - wide / 2;
  pen.fillStyle = colours().card;
  withAlpha(pen, 0.82, () => {
    pen.beginPath();
    pen.roundRect(left, y - 8, wide, 16, 4);
    pen.fill();
  });
  pen.fillStyle = colour;
  pen.textAlign = "left";
  pen.fillText(text, left + 4, y + 0.5);
}

/** An empty chart says what will be in it. */
export function invite(canvas, words) {
  const { pen, width, height } = prepare(canvas);
  pen.fillStyle = colours().soft;
  pen.textAlign = "center";
  pen.font = pen.font.replace("11px", "14px");
  pen.fillText(words, width / 2, height / 2);
}
