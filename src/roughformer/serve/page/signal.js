// The signal as it is sent: every lane a channel, and below it all that the model sees.

import { colours, crisp, line, plate, prepare, scale, withAlpha } from "./draw.js";
import { clock, moment, percent, plain, timeTicks } from "./format.js";
import { Ranges, signalTime } from "./ranges.js";
import { after } from "./recording.js";

const AXIS = 18; // pixels for the labels of time
const GAP = 8; // between lanes
const MOST_LANES = 6;
const PAST = 1.6; // horizons that are shown before now
const CONTEXT = 2.3; // times what is shown large, if the model does not say how far it looks

export class SignalChart {
  constructor(canvas, contextCanvas) {
    this.canvas = canvas;
    this.contextCanvas = contextCanvas;
    this.ranges = new Ranges();
    this.contextRanges = new Ranges();
  }

  reset() {
    this.ranges = new Ranges();
    this.contextRanges = new Ranges();
    prepare(this.canvas);
    prepare(this.contextCanvas);
  }

  /**
   * `ends`: times of predictions, `pace` apart; `span`: what the model sees, null if it does not
   * say; `explanation`: what the server said last, or null.
   */
  draw(player, { ends, pace, span, explanation }) {
    const { pen, width, height } = prepare(this.canvas);
    const theme = colours();
    const shown = signalTime(width, pace, player);
    const now = player.position;
    const x = scale(now - shown, now, 0, width);
    const bottom = height - AXIS;
    this.timeAxis(pen, x, now - shown, now, bottom, width, clock);
    pen.strokeStyle = theme.soft;
    pen.setLineDash([2, 4]);
    for (let i = ends.length - 1; i >= 0 && ends[i] > now - shown; i--) {
      withAlpha(pen, 0.55, () => line(pen, crisp(x(ends[i])), 0, crisp(x(ends[i])), bottom));
    }
    pen.setLineDash([]);
    const lanes = player.channels.slice(0, MOST_LANES);
    const high = (bottom - GAP * (lanes.length - 1)) / lanes.length;
    lanes.forEach((channel, lane) => {
      const top = lane * (high + GAP);
      this.lane(pen, player, channel, lane, x, now - shown, top, high);
      plate(pen, player.names[lane], 4, top + 9, theme.series[lane % 6]);
    });
    this.context(player, span ?? CONTEXT * shown, shown, explanation);
  }

  /** The signal, and ahead of it the last forecast with its band; `forecast` null: none yet. */
  drawForecast(player, forecast, horizon) {
    const { pen, width, height } = prepare(this.canvas);
    const theme = colours();
    const now = player.position;
    const [from, to] = [now - PAST * horizon, now + horizon];
    const x = scale(from, to, 0, width);
    const bottom = height - AXIS;
    this.timeAxis(pen, x, from, to, bottom, width, (time) => moment(time, to - from));
    const lanes = player.channels.slice(0, MOST_LANES);
    const high = (bottom - GAP * (lanes.length - 1)) / lanes.length;
    lanes.forEach((channel, lane) => {
      const top = lane * (high + GAP);
      const of = (name) => forecast?.[name].map((row) => row[lane]) ?? [];
      const [value, lower, upper] = ["value", "lower", "upper"].map(of);
      const y = this.lane(pen, player, channel, lane, x, from, top, high, [...lower, ...upper]);
      if (forecast && value[0] !== null) {
        // From what was observed last when it was made.
        const times = player.recording.times;
        const values = player.recording.values(channel);
        let row = after(times, forecast.time) - 1;
        while (row >= 0 && (Number.isNaN(values[row]) || !player.wasSent(row))) row--;
        const start = row < 0 ? null : [x(times[row]), y(values[row])];
        band(pen, x, y, forecast.at, { value, lower, upper, start }, theme.series[lane % 6]);
      }
      plate(pen, player.names[lane], 4, top + 9, theme.series[lane % 6]);
    });
    pen.strokeStyle = theme.soft;
    line(pen, crisp(x(now)), 0, crisp(x(now)), bottom);
    plate(pen, "now", x(now), bottom + AXIS / 2, theme.soft, "center");
  }

  timeAxis(pen, x, from, to, bottom, width, words) {
    const theme = colours();
    pen.fillStyle = theme.soft;
    pen.strokeStyle = theme.grid;
    pen.textAlign = "center";
    for (const time of timeTicks(from, to, Math.max(width / 110, 3))) {
      line(pen, crisp(x(time)), 0, crisp(x(time)), bottom);
      if (x(time) > 24 && x(time) < width - 20) {
        pen.fillText(words(time), x(time), bottom + AXIS / 2 + 1);
      }
    }
  }

  /** One channel; `more`: values that there must be room for. Returns the scale of its values. */
  lane(pen, player, channel, lane, x, from, top, high, more = []) {
    const theme = colours();
    const times = player.recording.times;
    const values = player.recording.values(channel);
    const first = Math.max(after(times, from) - 1, 0);
    const last = player.next;
    const [low, most] = this.ranges.update(lane, values, first, last, more);
    const y = scale(low, most, top + high, top);
    // All that was recorded, faint.
    pen.strokeStyle = theme.faint;
    pen.lineWidth = 1.1;
    pen.beginPath();
    let drawing = false;
    for (let row = first; row < last; row++) {
      if (Number.isNaN(values[row])) drawing = false;
      else if (drawing) pen.lineTo(x(times[row]), y(values[row]));
      else {
        pen.moveTo(x(times[row]), y(values[row]));
        drawing = true;
      }
    }
    pen.stroke();
    pen.lineWidth = 1;
    // What was sent, as dots: larger where there are fewer.
    pen.fillStyle = theme.series[lane % 6];
    const seconds = Math.max(times[last - 1] - times[first], 1e-9);
    let count = 0;
    for (let row = first; row < last; row++) if (player.wasSent(row)) count++;
    const apart = (x(seconds) - x(0)) / Math.max(count, 1); // pixels from dot to dot
    const radius = Math.min(Math.max(0.32 * apart, 1), 2.4);
    pen.beginPath();
    for (let row = first; row < last; row++) {
      if (!player.wasSent(row) || Number.isNaN(values[row])) continue;
      const [px, py] = [x(times[row]), y(values[row])];
      if (radius < 1.3) pen.rect(px - radius, py - radius, 2 * radius, 2 * radius);
      else {
        pen.moveTo(px + radius, py);
        pen.arc(px, py, radius, 0, 2 * Math.PI);
      }
    }
    pen.fill();
    return y;
  }

  /** The last `span` seconds, small, under the windows that drove the answer. */
  context(player, span, shown, explanation) {
    const { pen, width, height } = prepare(this.contextCanvas);
    const theme = colours();
    const now = player.position;
    const x = scale(now - span, now, 0, width);
    const bottom = height - AXIS;
    const top = 16;
    if (explanation) this.windows(pen, x, explanation, bottom, width);
    const lanes = player.channels.slice(0, MOST_LANES);
    const high = (bottom - top) / lanes.length;
    const times = player.recording.times;
    const first = after(times, now - span);
    lanes.forEach((channel, lane) => {
      const values = player.recording.values(channel);
      const range = this.contextRanges.update(lane, values, first, player.next);
      const y = scale(...range, top + (lane + 1) * high - 1, top + lane * high + 1);
      pen.strokeStyle = theme.series[lane % 6];
      envelope(pen, player, times, values, first, x, y);
    });
    // The part that is shown large above.
    pen.strokeStyle = theme.soft;
    const left = crisp(x(now - shown));
    line(pen, left, bottom + 0.5, width, bottom + 0.5);
    line(pen, left, top, left, bottom);
    pen.fillStyle = theme.soft;
    pen.textAlign = "left";
    pen.fillText(`${plain(span, 2)} s ago`, 2, bottom + AXIS / 2 + 1);
    pen.textAlign = "right";
    pen.fillText("now", width - 2, bottom + AXIS / 2 + 1);
    pen.textAlign = "center";
    if (width - left > 150) pen.fillText("shown above", (left + width) / 2, bottom + AXIS / 2 + 1);
  }

  windows(pen, x, explanation, bottom, width) {
    const theme = colours();
    for (const window of explanation.windows) {
      const left = Math.max(x(window.start), 0);
      const right = Math.min(x(window.end), width);
      if (right - left < 2) continue;
      pen.fillStyle = window.importance < 0 ? theme.down : theme.up;
      withAlpha(pen, 0.04 + 0.34 * window.strength, () => {
        pen.beginPath();
        pen.roundRect(left + 1, 0, right - left - 2, bottom, 5);
        pen.fill();
      });
      const text = percent(window.share);
      pen.textAlign = "center";
      if (window.share >= 0.005 && right - left > pen.measureText(text).width + 6) {
        pen.fillStyle = theme.ink;
        withAlpha(pen, 0.5 + 0.5 * window.strength, () => {
          pen.fillText(text, (left + right) / 2, 8);
        });
      }
    }
  }
}

/** A band, and a dashed line in it that begins at `start`, or null. */
function band(pen, x, y, at, { value, lower, upper, start }, colour) {
  pen.fillStyle = colour;
  pen.strokeStyle = colour;
  pen.beginPath();
  at.forEach((time, i) => pen.lineTo(x(time), y(upper[i])));
  at.toReversed().forEach((time, i) => pen.lineTo(x(time), y(lower.at(-1 - i))));
  withAlpha(pen, 0.2, () => pen.fill());
  pen.setLineDash([5, 3]);
  pen.lineWidth = 1.6;
  pen.beginPath();
  if (start) pen.moveTo(...start);
  at.forEach((time, i) => pen.lineTo(x(time), y(value[i])));
  pen.stroke();
  pen.setLineDash([]);
  pen.lineWidth = 1;
}

/** One upright line for each pixel, from the least to the largest value that was sent in it. */
function envelope(pen, player, times, values, first, x, y) {
  pen.beginPath();
  let pixel = -1;
  let low = Infinity;
  let high = -Infinity;
  const flush = () => {
    if (low <= high) {
      pen.moveTo(pixel + 0.5, Math.min(y(high), y(low) - 1.5));
      pen.lineTo(pixel + 0.5, y(low));
    }
  };
  for (let row = first; row < player.next; row++) {
    if (!player.wasSent(row) || Number.isNaN(values[row])) continue;
    const at = Math.floor(x(times[row]));
    if (at !== pixel) {
      flush();
      [pixel, low, high] = [at, Infinity, -Infinity];
    }
    low = Math.min(low, values[row]);
    high = Math.max(high, values[row]);
  }
  flush();
  pen.lineWidth = 1.3;
  pen.stroke();
  pen.lineWidth = 1;
}
