// Plays a recording into a stream in real time, and leaves observations out on the way.

import { after } from "./recording.js";
import { Stream } from "./stream.js";

const TICK = 50; // milliseconds
const LONGEST_TICK = 1.0; // seconds: a page in the background must not send minutes at once
const ROWS_AT_ONCE = 2000;
const BEHIND = 4; // seconds of play that the server may lag before the clock waits for it
const SENT = 1;
const DROPPED = 2;

export class Player {
  /** `channels`: those of the model; the recording has them all. */
  constructor(recording, channels, handlers) {
    this.recording = recording;
    this.handlers = handlers;
    this.channels = channels.map((name) => recording.channels.indexOf(name));
    this.names = channels;
    this.position = recording.start;
    this.speed = 1;
    this.dropped = 0; // share
    this.thinning = [{ time: recording.start, dropped: 0 }]; // changes of that share
    this.next = 0; // first row that was not decided upon
    this.fate = new Uint8Array(4096); // of each row: SENT, DROPPED, or 0 before that
    this.sent = 0;
    this.accepted = 0;
    this.lastSent = -Infinity;
    this.playing = false;
    this.ended = false;
    this.stream = new Stream({
      ...handlers,
      hello: (message) => this.resend(message),
      ack: (message) => {
        this.accepted = message.accepted ?? this.accepted;
      },
    });
  }

  async start() {
    this.handlers.state("wait", "connecting");
    await Promise.all([this.recording.ensure(this.recording.start + 1), this.stream.open()]);
    if (this.stream.closed) return; // stopped before it began
    this.last = performance.now();
    this.timer = setInterval(() => this.tick(), TICK);
    this.playing = true;
  }

  stop() {
    clearInterval(this.timer);
    this.playing = false;
    this.stream.close();
  }

  pause(paused) {
    this.playing = !paused;
    this.last = performance.now();
  }

  setDropped(share) {
    this.dropped = share;
    this.thinning.push({ time: this.position, dropped: share });
  }

  tick() {
    const now = performance.now();
    const passed = Math.min((now - this.last) / 1000, LONGEST_TICK);
    this.last = now;
    if (!this.playing || this.ended || !this.stream.live) return;
    const rate = this.next / Math.max(this.position - this.recording.start, 1);
    if (this.sent - this.accepted > Math.max(BEHIND * this.speed * rate, 100)) {
      this.handlers.state("wait", "waiting for the server");
      return;
    }
    const wish = this.position + passed * this.speed;
    if (this.recording.loadedTo < Math.min(wish, this.recording.end)) {
      this.handlers.state("wait", "loading");
      this.recording.ensure(wish).catch((error) => this.handlers.failed(error));
      return;
    }
    this.handlers.state("live", "live");
    this.position = Math.min(wish, this.recording.end);
    this.recording.prepare(this.position);
    this.decide();
    if (this.position >= this.recording.end) this.finish();
  }

  /** Sends or drops every row up to the position. */
  decide() {
    const end = after(this.recording.times, this.position);
    if (end > this.fate.length) {
      const larger = new Uint8Array(2 * end);
      larger.set(this.fate);
      this.fate = larger;
    }
    const rows = [];
    for (let row = this.next; row < end; row++) {
      const kept = Math.random() >= this.dropped && this.observed(row);
      this.fate[row] = kept ? SENT : DROPPED;
      if (kept) rows.push(row);
    }
    this.next = end;
    this.push(rows);
    // Time passes also when nothing is observed.
    const time = end ? this.recording.times[end - 1] : -Infinity;
    if (rows.length === 0 && this.sent > 0 && time >= this.lastSent + 1) {
      this.lastSent = time;
      this.stream.send({ type: "advance", time });
    }
  }

  observed(row) {
    return this.channels.some((c) => !Number.isNaN(this.recording.values(c)[row]));
  }

  push(rows) {
    for (let i = 0; i < rows.length; i += ROWS_AT_ONCE) {
      const part = rows.slice(i, i + ROWS_AT_ONCE);
      const { times, values } = this.observations(part);
      this.stream.send({ type: "push", times, values });
      this.sent += part.length;
      this.lastSent = times.at(-1);
    }
  }

  observations(rows) {
    return this.recording.rows(rows, this.channels);
  }

  /** The server says how far it has come; what it lacks is sent again, nothing else. */
  resend(message) {
    this.accepted = message.accepted ?? 0;
    this.sent = this.accepted;
    const since = message.last_time ?? -Infinity;
    this.lastSent = since;
    const first = after(this.recording.times, since);
    const rows = [];
    for (let row = first; row < this.next; row++) if (this.fate[row] === SENT) rows.push(row);
    this.push(rows);
  }

  finish() {
    this.ended = true;
    this.playing = false;
    clearInterval(this.timer);
    this.handlers.ended();
  }

  /** Rows that were sent in (start, end], at most the last `most`. */
  sentRows(start, end, most) {
    const times = this.recording.times;
    const first = after(times, start);
    const rows = [];
    for (let row = Math.min(after(times, end), this.next) - 1; row >= first; row--) {
      if (this.fate[row] === SENT) rows.push(row);
      if (rows.length === most) break;
    }
    return rows.reverse();
  }

  wasSent(row) {
    return row < this.next && this.fate[row] === SENT;
  }
}
