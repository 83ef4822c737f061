// Alarms: a banner while one is active, and a log of when they came and went.

import { clock, percent, plain } from "./format.js";

const MOST = 100;

/** What an alarm watches, for people: "heart rate above 110", "fast above 80 %". */
export function alarmWords(alarm, model) {
  const of = alarm.of ?? (model.targets?.length === 1 ? model.targets[0] : null);
  // A target without a name is called by its number; a class may be one.
  const name = of === null || (!model.classes && /^\d+$/.test(of)) ? "" : `${of} `;
  const level = model.classes ? percent(alarm.threshold) : plain(alarm.threshold);
  return `${name}${alarm.above ? "above" : "below"} ${level}`;
}

/** All that may ring, for people: "Rings when: heart rate above 110 for 3 s, until below 105". */
export function settings(alarms, model) {
  if (!alarms.length) return "None are set; roughformer serve --alarm 'above 100' sets one.";
  const level = (value) => (model.classes ? percent(value) : plain(value));
  const each = alarms.map(({ words, after, release, threshold, above }) => {
    const lasting = after > 0 ? ` for ${plain(after)} s` : "";
    const until = release === threshold ? "" : `, until ${above ? "below" : "above"} ${level(release)}`;
    return `${words}${lasting}${until}`;
  });
  return `Rings when: ${each.join("; ")}.`;
}

export class Alarms {
  constructor({ banner, log, card }) {
    Object.assign(this, { banner, log, card });
    this.active = [];
  }

  reset() {
    this.active = [];
    this.log.replaceChildren();
    this.show("");
  }

  /** `alarms` of a prediction: [{words, active, changed}]. */
  update(alarms, time, words) {
    const names = alarms.filter((alarm) => alarm.active).map((alarm) => alarm.words);
    for (const name of names) {
      if (!this.active.includes(name)) this.note(time, `${name} (${words})`, true);
    }
    for (const name of this.active) {
      if (!names.includes(name)) this.note(time, `over: ${name} (${words})`, false);
    }
    // The banner is read out when its words change: only when alarms come or go.
    if (names.join() !== this.active.join()) {
      this.show(names.length ? `Alarm since ${clock(time)}: ${names.join(", ")}` : "");
    }
    this.active = names;
  }

  show(words) {
    this.banner.textContent = words;
    this.banner.hidden = words === "";
    this.card.classList.toggle("alarmed", words !== "");
  }

  note(time, words, raised) {
    const item = document.createElement("li");
    item.className = raised ? "raised" : "cleared";
    for (const part of [clock(time), words]) {
      const span = document.createElement("span");
      span.textContent = part;
      item.append(span);
    }
    this.log.prepend(item);
    if (this.log.children.length > MOST) this.log.lastChild.remove();
  }
}
