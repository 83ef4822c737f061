// When pictures are drawn, and what is in them.

import { forecasts } from "./about.js";
import { invite } from "./draw.js";
import { clock, moment, number, percent } from "./format.js";
import { inWords } from "./number.js";

const QUICK = 30; // milliseconds between pictures
const SLOW = 1000; // the same for those who want little motion
const WORDS = 5000; // milliseconds between descriptions for those who hear the page
const byId = (id) => document.getElementById(id);
const reduced = matchMedia("(prefers-reduced-motion: reduce)");

/** Time from one prediction to the next: as the model is served, or as they came. */
function paceOf({ model, ends }) {
  const { stream, windows } = model;
  const lasting = windows?.rule === "duration" ? windows.amount : null;
  const seen = ends.length > 1 ? (ends.at(-1) - ends[0]) / (ends.length - 1) : 1;
  return stream?.every ?? lasting ?? seen;
}

function draw(page, { signal, chart }) {
  const { player, model } = page;
  if (!model) return;
  const pace = paceOf(page);
  player?.follow?.(performance.now());
  if (player?.next) {
    const { explanation } = page.drivers;
    const last = page.answers.at(-1);
    if (forecasts(model)) signal.drawForecast(player, last?.prediction ?? null, model.horizon);
    else signal.draw(player, { ends: page.ends, pace, span: model.stream?.span ?? null, explanation });
    if (player.thinning) tellSent(player, model);
    if (player.playing && !forecasts(model)) page.drivers.poll(player, last);
  } else {
    invite(byId("signal"), invitation(page));
  }
  if (forecasts(model)) return;
  const [first, last] = [page.answers[0], page.answers.at(-1)];
  if (!last) {
    invite(byId("answers"), "What the model says comes here.");
    return;
  }
  chart.draw({
    answers: page.answers,
    pace,
    begin: player?.thinning ? player.recording.start : first.time,
    now: player?.next ? player.position : last.time,
    thinning: player?.thinning ?? null,
    alarms: page.alarms,
    classes: model.classes?.map(String) ?? null,
  });
}

function invitation({ player }) {
  if (!byId("watch").hidden) {
    if (player) return "What is sent to the stream from now on runs here.";
    return "Give the id of a stream: its signal runs here.";
  }
  if (byId("play").disabled) return "Choose a file: its signal runs here.";
  return "Press Start: the signal runs here.";
}

function tellSent({ sent, next, position, recording }, model) {
  const words = (time) => (forecasts(model) ? moment(time, recording.end - recording.start) : clock(time));
  byId("sent").textContent =
    `${sent.toLocaleString("en")} of ${next.toLocaleString("en")} observations sent ` +
    `(${percent(sent / next)}), at ${words(position)} of ${words(recording.end)}`;
}

/** Pictures in words. */
function describePictures(page) {
  const last = page.answers.at(-1);
  if (!last) return;
  const say = (id, words) => byId(id).setAttribute("aria-label", words);
  say("answers", `Predictions up to ${clock(last.time)}: now ${inWords(last)}`);
  if (!page.player) return;
  const names = page.model.channels.join(", ");
  const ahead = forecasts(page.model) ? `, with the forecast of the next ${number(page.model.horizon)}` : "";
  say("signal", `Signal of ${names} up to ${clock(page.player.position)}${ahead}`);
  const { words } = page.drivers;
  say("context", words ? `Change of the answer by each window: ${words}` : "The last observations");
}

export function startPictures(page, charts) {
  let drawn = -Infinity;
  const frame = (now) => {
    if (now - drawn >= (reduced.matches ? SLOW : QUICK)) {
      drawn = now;
      draw(page, charts);
    }
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  setInterval(() => describePictures(page), WORDS);
}
