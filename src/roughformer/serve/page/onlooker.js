// Shows a stream that something else feeds: its observations and predictions as they come.

import { after, Recording } from "./recording.js";
import { Stream } from "./stream.js";

const MOST_ROWS = 400000; // of them the older half is forgotten
const EASE = 300; // milliseconds in which the picture follows what has come
const LEAP = 60; // units of time that are not scrolled through

/** Has of a Player what the pictures need. */
export class Onlooker {
  constructor(channels, handlers) {
    this.recording = new Recording({ name: "", title: "", channels, seconds: Infinity });
    this.names = channels;
    this.channels = channels.map((_, c) => c);
    this.position = NaN;
    this.moved = 0;
    this.speed = 1;
    this.playing = true;
    this.thinning = null; // what its sender left out is not known
    this.stream = new Stream({
      ...handlers,
      hello: (message) => this.goBack(message.last_time ?? -Infinity),
      ack: () => {},
      observations: (message) => this.add(message),
    });
  }

  start(id) {
    return this.stream.watch(id);
  }

  stop() {
    this.playing = false;
    this.stream.close();
  }

  /** After a break the stream may be at an earlier time, or another one of the same name. */
  goBack(time) {
    this.recording.cut(after(this.recording.times, time));
  }

  /** Late observations are not taken by the service, and not shown. */
  add({ times, values }) {
    times.forEach((time, row) => {
      if (!(time <= this.last)) this.recording.add(time, values[row]);
    });
    if (this.next > MOST_ROWS) this.recording.forget(this.next - MOST_ROWS / 2);
  }

  /** Time of the newest observation; NaN before the first. */
  get last() {
    return this.next ? this.recording.times[this.next - 1] : NaN;
  }

  get next() {
    return this.recording.times.length;
  }

  /** Observations come in pieces: the picture follows smoothly. */
  follow(now) {
    const { last } = this;
    const left = last - this.position;
    const share = Math.exp(-(now - this.moved) / EASE);
    this.position = left >= 0 && left < LEAP ? last - left * share : last;
    this.moved = now;
  }

  wasSent() {
    return true;
  }

  sentRows(start, end, most) {
    const last = after(this.recording.times, end);
    const first = Math.max(after(this.recording.times, start), last - most);
    return Array.from({ length: last - first }, (_, k) => first + k);
  }

  observations(rows) {
    return this.recording.rows(rows, this.channels);
  }
}
