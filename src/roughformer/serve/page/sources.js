// Where signals come from: recordings of the service, a file, a stream of others.

import { forecasts, legend } from "./about.js";
import { openFile } from "./file.js";
import { Onlooker } from "./onlooker.js";
import { complain, halt, page, receive, status } from "./page.js";
import { writePlace } from "./place.js";
import { Player } from "./player.js";
import { Recording } from "./recording.js";

const FILE = "(file)";
export const WATCH = "(watch)";
const HORIZON_SECONDS = 20;
const SPAN_SECONDS = 32;
const ABOUT = {
  [FILE]: "As the model was trained on (its first series), or with a column truth.",
  [WATCH]: "Shows what something else sends to the service, and the predictions, as they come.",
};
const byId = (id) => document.getElementById(id);

export function fillSources() {
  const missing = (recording) =>
    page.model.channels.filter((name) => !recording.channels.includes(name));
  const options = page.recordings.map((recording) => {
    const lacks = missing(recording);
    const option = new Option(recording.title, recording.name);
    option.disabled = lacks.length > 0;
    if (option.disabled) option.text += ` (has no ${lacks.join(", ")})`;
    return option;
  });
  options.push(new Option("Open a file …", FILE));
  byId("source").replaceChildren(...options, new Option("Watch a stream …", WATCH));
  byId("source").value = options.find((option) => !option.disabled)?.value ?? WATCH;
}

const chosen = () => page.recordings.find((recording) => recording.name === byId("source").value);

/** What is chosen is made ready, and what played ends. */
export function choose() {
  halt();
  const { value } = byId("source");
  const watching = value === WATCH;
  byId("watch").hidden = !watching;
  byId("file-field").hidden = value !== FILE;
  for (const id of ["play-field", "speed", "thin-field", "dropped-key"]) {
    byId(id).hidden = watching;
  }
  byId("about").textContent = chosen()?.about ?? ABOUT[value];
  byId("play").disabled = !chosen() && !(value === FILE && page.file);
  byId("restart").disabled = true;
  byId("play").textContent = "Start";
  legend(page.model, { watching, truth: Boolean(chosen()?.truth ?? page.file?.truthName) });
  status("idle", "idle");
  writePlace();
}

/**
 * Time of a recording that passes in a second: a forecaster's horizon in twenty seconds, a span in 32.
 */
export function speed() {
  const { model } = page;
  const factor = Number(document.querySelector("input[name=speed]:checked").value);
  if (forecasts(model)) return (factor * model.horizon) / HORIZON_SECONDS;
  return model.stream?.span ? (factor * model.stream.span) / SPAN_SECONDS : factor;
}

const handlers = () => ({
  state: status,
  window: receive,
  refused: (message) => complain(`The service refused observations: ${message.message}`),
});

export async function play() {
  const facts = chosen();
  const made = facts instanceof Recording ? facts : facts && new Recording(facts);
  const player = new Player(made ?? page.file, page.model.channels, {
    ...handlers(),
    failed: (error) => complain(`The recording cannot be loaded: ${error.message}.`),
    ended: () => {
      status("idle", "ended");
      byId("play").disabled = true;
      byId("play").textContent = "Ended";
    },
  });
  page.player = player;
  player.speed = speed();
  player.setDropped(Number(byId("dropped").value) / 100);
  byId("play").textContent = "Pause";
  byId("restart").disabled = false;
  complain("");
  try {
    await player.start();
  } catch (error) {
    if (page.player !== player) return;
    choose();
    status("bad", "not started");
    complain(`The stream cannot be opened: ${error.message}.`);
  }
}

export function playOrPause() {
  if (page.player === null) {
    play();
    return;
  }
  page.player.pause(page.player.playing);
  byId("play").textContent = page.player.playing ? "Pause" : "Resume";
  if (!page.player.playing) status("idle", "paused");
}

export async function open() {
  page.file = null;
  complain("");
  try {
    page.file = await openFile(byId("file").files[0], page.model.channels);
  } catch (error) {
    complain(`${error.message}.`);
  }
  choose();
}

export async function watch() {
  halt();
  writePlace();
  const onlooker = new Onlooker(page.model.channels, handlers());
  page.player = onlooker;
  complain("");
  try {
    await onlooker.start(byId("stream-id").value);
  } catch (error) {
    if (page.player !== onlooker) return;
    halt();
    status("bad", "not connected");
    complain(`The stream cannot be watched: ${error.message}.`);
  }
}
