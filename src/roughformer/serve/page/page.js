// What the page knows: the model, what plays, and the answers so far.

import { tells } from "./about.js";
import { Alarms } from "./alarms.js";
import { AnswerChart, readNumber } from "./answers.js";
import { inWords, showNumber } from "./number.js";
import { SignalChart } from "./signal.js";

const MOST_ANSWERS = 5000;
const EARLY = 0.2; // of the span: what is said before rests on little
const byId = (id) => document.getElementById(id);

export const page = {
  model: null,
  recordings: [],
  file: null, // a recording of the visitor's own
  player: null, // a Player or an Onlooker
  answers: [],
  ends: [],
  alarms: [], // thresholds
  drivers: null, // what drove the answers
  target: 0,
};
export const signal = new SignalChart(byId("signal"), byId("context"));
export const chart = new AnswerChart(byId("answers"));
const alarms = new Alarms({
  banner: byId("alarm"),
  log: byId("log"),
  card: document.querySelector(".card.number"),
});

export function status(state, words) {
  const place = byId("status");
  if (place.dataset.state !== state) place.dataset.state = state;
  if (byId("status-text").textContent !== words) byId("status-text").textContent = words;
  // What is shown may be old.
  document.querySelector(".card.number").classList.toggle("stale", state === "bad");
}

export function complain(words) {
  byId("error").textContent = words;
  byId("error").hidden = words === "";
}

/** Ends what plays and forgets what was said. */
export function halt() {
  page.player?.stop();
  Object.assign(page, { player: null, answers: [], ends: [] });
  alarms.reset();
  page.drivers?.stop();
  signal.reset();
  chart.reset();
  showNumber(null, page.model);
  byId("sent").textContent = "nothing sent yet";
}

/** A window ended: the service tells its prediction. */
export function receive(message) {
  const { prediction, time } = message;
  const { recording } = page.player;
  const span = page.model.stream?.span ?? 0;
  const known = tells(recording, page.model, page.target);
  const answer = {
    time,
    prediction,
    target: page.target,
    unit: known ? recording.unit : "",
    truth: known ? recording.truth(time, span) : NaN, // what the model was asked for
    moment: known ? recording.truth(time, 0) : NaN,
    early: time - (page.answers[0]?.time ?? time) < EARLY * span,
    alarms: (message.alarms ?? []).map((alarm, i) => ({
      ...alarm,
      words: page.alarms[i]?.words ?? alarm.name,
    })),
    number: page.model.classes ? null : readNumber(prediction, page.target),
    probabilities: prediction.probabilities ?? null,
  };
  // A stream that was opened anew tells some windows again.
  while (page.answers.length && page.answers.at(-1).time >= time) {
    page.answers.pop();
    page.ends.pop();
  }
  page.answers.push(answer);
  page.ends.push(time);
  if (page.answers.length > MOST_ANSWERS) {
    page.answers.shift();
    page.ends.shift();
  }
  showNumber(answer, page.model);
  alarms.update(answer.alarms, time, inWords(answer));
}

/** Another one of several targets is looked at. */
export function look(target) {
  page.target = target;
  for (const answer of page.answers) {
    answer.number = readNumber(answer.prediction, target);
    answer.target = target;
  }
  chart.reset();
  showNumber(page.answers.at(-1) ?? null, page.model);
}
