// Predictions over time: a number with its band beside the truth, or the chance of each class.

import { colours, crisp, line, plate, prepare, scale, withAlpha } from "./draw.js";
import { clock, percent, tick, ticks, timeTicks } from "./format.js";
import { answersTime } from "./ranges.js";

const LEFT = 54;
const RIGHT = 8;
const AXIS = 18;
const DROPS = 20; // height of the lane that tells what was left out
export const MOST_CLASSES = 6;

function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : 0;
}

/** One answer of a regression, for the chosen target: {point, low, high, deviation}. */
export function readNumber(prediction, target) {
  const of = (value) => (Array.isArray(value) ? value[target] : value);
  const point = of(prediction.point);
  const interval = prediction.interval;
  if (interval) {
    const [low, high] = Array.isArray(interval[0]) ? interval[target] : interval;
    // null: of series with far fewer values than the calibration had nothing is known.
    return { point, deviation: null, low: low ?? NaN, high: high ?? NaN };
  }
  if (prediction.deviation !== undefined && prediction.deviation !== null) {
    const deviation = of(prediction.deviation);
    return { point, deviation, low: point - deviation, high: point + deviation };
  }
  let levels = prediction.quantiles ?? null;
  if (levels && Array.isArray(levels[0])) levels = levels[target];
  if (levels) return { point, deviation: null, low: levels[0], high: levels.at(-1) };
  return { point, deviation: null, low: point, high: point };
}

export class AnswerChart {
  constructor(canvas) {
    this.canvas = canvas;
    this.range = null;
  }

  reset() {
    this.range = null;
    prepare(this.canvas);
  }

  /**
   * `answers`: [{time, number | probabilities, truth, moment, alarms, early}], by time, `pace`
   * apart; `begin`, `now`: of the stream; `thinning`: [{time, dropped}] or null; `alarms`: [{threshold, above, words}];
   * `classes`: those to draw.
   */
  draw({ answers, pace, begin, now, thinning, alarms, classes }) {
    const { pen, width, height } = prepare(this.canvas);
    const shown = answersTime(width, pace);
    const from = Math.max(begin, now - shown);
    const x = scale(from, from + shown, LEFT, width - RIGHT);
    const bottom = height - AXIS - (thinning ? DROPS : 0);
    let first = answers.length;
    while (first > 0 && answers[first - 1].time >= from) first--;
    const visible = answers.slice(Math.max(first - 1, 0));
    const [low, high] = classes ? [0, 1] : this.update(visible, alarms);
    const y = scale(low, high, bottom - 2, 6);
    this.axes(pen, x, y, { low, high, from, to: from + shown, bottom, width, height, classes });
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, width - LEFT - RIGHT + 4, bottom);
    pen.clip();
    this.alarmed(pen, x, visible, bottom);
    if (classes) this.chances(pen, x, y, visible, classes);
    else this.numbers(pen, x, y, visible);
    this.thresholds(pen, y, alarms, width);
    pen.restore();
    if (thinning) this.drops(pen, x, thinning, { from, now, bottom, width });
  }

  /** The range of numbers to show; what was said at the very beginning does not count. */
  update(answers, alarms) {
    const settled = answers.filter((answer) => !answer.early);
    const visible = settled.length ? settled : answers;
    const numbers = visible.map((answer) => answer.number);
    const levels = visible.flatMap((answer) => [answer.number.point, answer.truth, answer.moment]);
    const finite = levels.filter(Number.isFinite);
    if (finite.length === 0) return this.range ?? [0, 1];
    const wide = median(numbers.map((n) => (n.high - n.low) / 2).filter(Number.isFinite));
    let low = Math.min(...finite) - 1.6 * wide;
    let high = Math.max(...finite) + 1.6 * wide;
    const least = 0.12 * Math.max(Math.abs(low), Math.abs(high), 1e-9);
    if (high - low < least) {
      const middle = (low + high) / 2;
      [low, high] = [middle - least / 2, middle + least / 2];
    }
    for (const alarm of alarms) {
      // A threshold that is near belongs into the picture.
      if (alarm.threshold > high && alarm.threshold < high + 0.6 * (high - low)) {
        high = alarm.threshold + 0.14 * (high - low);
      }
      if (alarm.threshold < low && alarm.threshold > low - 0.6 * (high - low)) {
        low = alarm.threshold - 0.14 * (high - low);
      }
    }
    const before = this.range;
    this.range = before
      ? [
          Math.min(low, before[0] + 0.04 * (low - before[0])),
          Math.max(high, before[1] + 0.04 * (high - before[1])),
        ]
      : [low, high];
    return this.range;
  }

  axes(pen, x, y, { low, high, from, to, bottom, width, height, classes }) {
    const theme = colours();
    pen.strokeStyle = theme.grid;
    pen.fillStyle = theme.soft;
    pen.textAlign = "right";
    for (const value of ticks(low, high, Math.max(bottom / 32, 2))) {
      line(pen, LEFT, crisp(y(value)), width - RIGHT, crisp(y(value)));
      pen.fillText(classes ? percent(value) : tick(value), LEFT - 6, y(value));
    }
    pen.textAlign = "center";
    for (const time of timeTicks(from, to, Math.max(width / 120, 3))) {
      if (x(time) > LEFT + 10 && x(time) < width - 18) {
        pen.fillText(clock(time), x(time), height - AXIS / 2 + 1);
      }
    }
  }

  numbers(pen, x, y, visible) {
    const theme = colours();
    const bounded = visible.filter(({ number: n }) => Number.isFinite(n.high - n.low));
    for (const [factor, alpha] of [
      [2, 0.13],
      [1, 0.22],
    ]) {
      pen.fillStyle = theme.band;
      pen.beginPath();
      for (const { time, number: n } of bounded) {
        pen.lineTo(x(time), y(n.point + factor * (n.high - n.point)));
      }
      for (const { time, number: n } of [...bounded].reverse()) {
        pen.lineTo(x(time), y(n.point + factor * (n.low - n.point)));
      }
      if (factor === 1 || visible.some((answer) => answer.number.deviation !== null)) {
        withAlpha(pen, alpha, () => pen.fill());
      }
    }
    pen.setLineDash([1, 3]);
    this.curve(pen, x, y, visible, (answer) => answer.moment, theme.truth, 1.5);
    pen.setLineDash([6, 4]);
    this.curve(pen, x, y, visible, (answer) => answer.truth, theme.truth, 2);
    pen.setLineDash([]);
    this.curve(pen, x, y, visible, (answer) => answer.number.point, theme.accent, 2.4);
    this.head(pen, x, y, visible, (answer) => answer.number.point, theme.accent);
  }

  chances(pen, x, y, visible, classes) {
    const theme = colours();
    classes.slice(0, MOST_CLASSES).forEach((name, i) => {
      const of = (answer) => answer.probabilities[name] ?? 0;
      this.curve(pen, x, y, visible, of, theme.series[i], 2.2);
      this.head(pen, x, y, visible, of, theme.series[i]);
    });
  }

  curve(pen, x, y, visible, of, colour, wide) {
    pen.strokeStyle = colour;
    pen.lineWidth = wide;
    pen.beginPath();
    let drawing = false;
    for (const answer of visible) {
      const value = of(answer);
      if (!Number.isFinite(value)) drawing = false;
      else if (drawing) pen.lineTo(x(answer.time), y(value));
      else {
        pen.moveTo(x(answer.time), y(value));
        drawing = true;
      }
    }
    pen.stroke();
    pen.lineWidth = 1;
  }

  head(pen, x, y, visible, of, colour) {
    const last = visible.at(-1);
    if (!last) return;
    pen.fillStyle = colour;
    pen.beginPath();
    pen.arc(x(last.time), y(of(last)), 3.6, 0, 2 * Math.PI);
    pen.fill();
  }

  alarmed(pen, x, visible, bottom) {
    const theme = colours();
    pen.fillStyle = theme.alarm;
    pen.strokeStyle = theme.alarm;
    let since = null;
    visible.forEach((answer, i) => {
      const active = answer.alarms.some((alarm) => alarm.active);
      if (active) since ??= answer.time;
      if (since !== null && (!active || i === visible.length - 1)) {
        const wide = x(answer.time) - x(since);
        withAlpha(pen, 0.12, () => pen.fillRect(x(since), 0, wide, bottom));
        since = null;
      }
      if (answer.alarms.some((alarm) => alarm.active && alarm.changed)) {
        const at = crisp(x(answer.time));
        pen.beginPath();
        pen.moveTo(at - 6, 1);
        pen.lineTo(at + 6, 1);
        pen.lineTo(at, 10);
        pen.fill();
        line(pen, at, 0, at, bottom);
      }
    });
  }

  thresholds(pen, y, alarms, width) {
    const theme = colours();
    for (const alarm of alarms) {
      const at = y(alarm.threshold);
      pen.strokeStyle = theme.alarm;
      pen.setLineDash([7, 5]);
      withAlpha(pen, 0.75, () => line(pen, LEFT, crisp(at), width - RIGHT, crisp(at)));
      pen.setLineDash([]);
      plate(pen, `alarm: ${alarm.words}`, LEFT + 6, at + (alarm.above ? -10 : 10), theme.alarm);
    }
  }

  drops(pen, x, thinning, { from, now, bottom, width }) {
    const theme = colours();
    const top = bottom + 3;
    const high = DROPS - 4;
    pen.fillStyle = theme.faint;
    thinning.forEach((change, i) => {
      const until = thinning[i + 1]?.time ?? now;
      if (until < from || change.dropped === 0) return;
      const left = x(Math.max(change.time, from));
      const tall = high * change.dropped;
      pen.fillRect(left, top + high - tall, x(until) - left, tall);
    });
    pen.fillStyle = theme.soft;
    pen.textAlign = "right";
    pen.fillText("dropped", LEFT - 5, top + high / 2 + 1);
    pen.strokeStyle = theme.grid;
    line(pen, LEFT, crisp(top + high), width - RIGHT, crisp(top + high));
  }
}
