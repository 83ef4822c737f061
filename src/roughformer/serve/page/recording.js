// Observations to play: those of a demo recording, loaded piece by piece, or of a file.

import { request } from "./api.js";

const PIECE = 30; // seconds of one request
const AHEAD = 40; // seconds that are loaded before they are played

const EXAMPLE_HORIZONS = 12; // how long a made-up recording is
const EXAMPLE_ROWS = 24; // of it, about, in one horizon

/** Numbers that grow; `view` is the part in use. */
class Column {
  constructor() {
    this.numbers = new Float64Array(4096);
    this.length = 0;
  }

  push(value) {
    if (this.length === this.numbers.length) {
      const larger = new Float64Array(2 * this.length);
      larger.set(this.numbers);
      this.numbers = larger;
    }
    this.numbers[this.length++] = value;
  }

  forget(count) {
    this.numbers.copyWithin(0, count, this.length);
    this.length -= count;
  }

  get view() {
    return this.numbers.subarray(0, this.length);
  }
}

/** The first place of a sorted array where it exceeds `value`. */
export function after(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

export class Recording {
  constructor(facts) {
    this.name = facts.name;
    this.title = facts.title;
    this.channels = facts.channels;
    this.start = facts.start ?? 0;
    this.end = facts.end ?? facts.seconds;
    this.truthName = facts.truth?.name ?? "";
    this.unit = facts.truth?.unit ?? "";
    this.timeColumn = new Column();
    this.valueColumns = facts.channels.map(() => new Column());
    this.truthTimes = new Column();
    this.truthValues = new Column();
    this.loadedTo = this.start;
    this.loading = null;
  }

  get times() {
    return this.timeColumn.view;
  }

  /** Values of channel `c`; NaN = not observed. */
  values(c) {
    return this.valueColumns[c].view;
  }

  /** Resolves when all up to `time` is there, and goes on loading what comes next. */
  async ensure(time) {
    while (this.loadedTo < Math.min(time, this.end)) {
      this.loading ??= this.load().finally(() => {
        this.loading = null;
      });
      await this.loading;
    }
  }

  /** Loads ahead of `time`; a failure shows when the piece is really needed. */
  prepare(time) {
    if (!this.loading) this.ensure(time + AHEAD).catch(() => {});
  }

  async load() {
    const to = Math.min(this.loadedTo + PIECE, this.end);
    const path = `v1/demo/${encodeURIComponent(this.name)}?from=${this.loadedTo}&to=${to}`;
    const piece = await request(path);
    piece.times.forEach((time, row) => {
      this.add(time, piece.values[row]);
    });
    (piece.truth?.times ?? []).forEach((time, row) => {
      this.addTruth(time, piece.truth.values[row]);
    });
    this.loadedTo = to;
  }

  add(time, values) {
    this.timeColumn.push(time);
    values.forEach((value, c) => {
      this.valueColumns[c].push(value ?? NaN);
    });
  }

  addTruth(time, value) {
    this.truthTimes.push(time);
    this.truthValues.push(value ?? NaN);
  }

  /** Only the first `count` rows remain. */
  cut(count) {
    for (const column of [this.timeColumn, ...this.valueColumns]) column.length = count;
  }

  /** The first `count` rows are not needed any more. */
  forget(count) {
    for (const column of [this.timeColumn, ...this.valueColumns]) column.forget(count);
  }

  /** Rows as the service takes them, with these channels: null = not observed. */
  rows(numbers, channels) {
    const columns = channels.map((c) => this.values(c));
    const times = this.times;
    return {
      times: numbers.map((row) => times[row]),
      values: numbers.map((row) =>
        columns.map((column) => (Number.isNaN(column[row]) ? null : column[row])),
      ),
    };
  }

  /** Slow waves with noise around the usual level of each channel of a forecaster, at random times. */
  static example({ channels, centre, spread, horizon, dated }) {
    const start = dated ? 1.7e9 : 0;
    const recording = new Recording({
      name: "example",
      title: "A synthetic example",
      channels,
      start,
      end: start + EXAMPLE_HORIZONS * horizon,
    });
    recording.about = "Made up: a slow wave with noise around the usual level of each channel.";
    recording.loadedTo = recording.end;
    let time = start;
    for (let row = 0; time < recording.end; row++) {
      const phase = (2 * Math.PI * (time - start)) / horizon;
      const values = channels.map((_, c) =>
        row % (channels.length + 1) === c // now and then one is missing
          ? NaN
          : centre[c] + spread[c] * (Math.sin(phase / (1 + 0.3 * c) + c) + 0.2 * (Math.random() - 0.5)),
      );
      recording.add(time, values);
      time += (horizon / EXAMPLE_ROWS) * (0.5 + Math.random());
    }
    return recording;
  }

  /** Mean of the true value over (time - span, time]; NaN if it is not known. */
  truth(time, span) {
    const times = this.truthTimes.view;
    const last = after(times, time);
    let first = span > 0 ? after(times, time - span) : last - 1;
    let sum = 0;
    let count = 0;
    for (first = Math.max(first, 0); first < last; first++) {
      const value = this.truthValues.view[first];
      if (Number.isFinite(value)) {
        sum += value;
        count++;
      }
    }
    return count ? sum / count : NaN;
  }
}
