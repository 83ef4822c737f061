// Which channels and windows the last answer rests on: asked every few seconds.

import { post } from "./api.js";
import { clock, signed } from "./format.js";

const EVERY = 3000; // milliseconds of the recording, if the server is quick
const PATIENCE = 1.5; // it is asked again after so many times what the answer took
const MOST_ROWS = 5000;
const LITTLE = 0.25; // of the yardstick: less does not matter

export class Drivers {
  constructor(list, text, model) {
    this.list = list;
    this.text = text;
    this.model = model;
    this.stop();
  }

  stop() {
    this.explanation = null;
    this.words = "";
    this.asking = null;
    this.waitUntil = 0;
    this.list.replaceChildren();
    this.text.textContent = "Told while a signal runs.";
  }

  /** Asks if it is time; `about` is the last answer. */
  poll(player, about) {
    const now = performance.now();
    if (this.asking || now < this.waitUntil || !about) return;
    const span = this.model.stream?.span;
    const from = span ? player.position - span : -Infinity;
    const rows = player.sentRows(from, player.position, MOST_ROWS);
    if (rows.length < 8) return;
    const body = {
      channels: this.model.channels,
      series: [player.observations(rows)],
    };
    if (this.model.targets && this.model.targets.length > 1) body.target = about.target;
    const asking = post("v1/explain", body);
    this.asking = asking;
    asking
      .then(
        (answer) => {
          if (this.asking === asking) this.show(answer, about);
        },
        (error) => {
          if (this.asking === asking && error.status !== 503) {
            this.text.textContent = `Not told: ${error.message}`;
            this.list.replaceChildren();
          }
        },
      )
      .finally(() => {
        if (this.asking !== asking) return;
        this.asking = null;
        const took = performance.now() - now;
        this.waitUntil = performance.now() + Math.max(EVERY / player.speed - took, PATIENCE * took);
      });
  }

  /** Bars are as long as the change by hiding a part, held against what matters at all. */
  show(answer, about) {
    const numbers = !this.model.classes;
    const deviation = about.number?.deviation;
    const floor = numbers ? deviation || 0.01 * Math.abs(answer.value) || 1e-9 : 1;
    const scaled = (parts) => {
      const largest = Math.max(floor, ...parts.map((part) => Math.abs(part.importance)));
      for (const part of parts) part.strength = Math.abs(part.importance) / largest;
      return parts;
    };
    scaled(answer.channels);
    scaled(answer.windows);
    this.explanation = answer;
    const all = [...answer.channels, ...answer.windows];
    const largest = Math.max(...all.map((part) => Math.abs(part.importance)));
    const yardstick = Math.max(floor, largest / 30); // what is less needs no digits
    const unit = numbers ? (about.unit ? ` ${about.unit}` : "") : "";
    const most = Math.max(0, ...all.map((part) => part.strength));
    const what = numbers ? "the answer" : `the log-odds of ${answer.target}`;
    const when = `at ${clock(about.time)}`;
    this.text.textContent =
      most < LITTLE
        ? `No channel and no window alone mattered ${when}: without it ${what} is about the same.`
        : `By how much each channel raised (+) or lowered (−) ${what} ${when}, against the ` +
          "same without it.";
    this.list.replaceChildren(
      ...answer.channels.map((part) => {
        const words = `${signed(part.importance, yardstick)}${unit}`;
        return bar(part.name, words, part.strength, part.importance < 0 ? "down" : "up");
      }),
    );
    this.words = answer.windows
      .map((part) => `${clock(part.start)} to ${clock(part.end)}: ${signed(part.importance, yardstick)}`)
      .join("; ");
  }
}

/** A list item: name, words, and a bar of the given share. */
export function bar(name, words, share, kind) {
  const item = document.createElement("li");
  const label = document.createElement("span");
  label.className = "name";
  label.textContent = name;
  const value = document.createElement("span");
  value.textContent = words;
  const space = "http://www.w3.org/2000/svg";
  const track = document.createElementNS(space, "svg");
  track.setAttribute("class", "track");
  track.setAttribute("aria-hidden", "true");
  for (const [className, width] of [
    ["", 1],
    [`fill ${kind}`, Math.min(Math.max(share, 0), 1)],
  ]) {
    const rect = document.createElementNS(space, "rect");
    rect.setAttribute("class", className);
    rect.setAttribute("width", `${100 * width}%`);
    rect.setAttribute("height", "8");
    track.append(rect);
  }
  item.append(label, value, track);
  return item;
}
