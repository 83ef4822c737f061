// The page: what is chosen, what plays, what is shown.

import { describe, tells } from "./about.js";
import { AnswerChart, readNumber } from "./answers.js";
import { Alarms, alarmWords } from "./alarms.js";
import { request, setToken } from "./api.js";
import { Drivers } from "./drivers.js";
import { openFile } from "./file.js";
import { inWords, showNumber } from "./number.js";
import { startPictures } from "./pictures.js";
import { Player } from "./player.js";
import { Recording } from "./recording.js";
import { SignalChart } from "./signal.js";
import { Stream } from "./stream.js";

const FILE = "(file)";
const WATCH = "(watch)";
const ABOUT = {
  [FILE]: "A column time, one for each channel by its name, and truth if it is known.",
  [WATCH]: "Shows the predictions of a stream as they come.",
};
const MOST_ANSWERS = 5000;
const EARLY = 0.2; // of the span: what is said before rests on little
const byId = (id) => document.getElementById(id);

const page = {
  model: null,
  recordings: [],
  file: null, // a recording of the visitor's own
  player: null,
  stream: null, // a stream that is watched
  answers: [],
  ends: [],
  alarms: [], // thresholds
  drivers: null, // what drove the answers
  target: 0,
  begin: 0, // of the stream, in its time
  now: 0,
};
const signal = new SignalChart(byId("signal"), byId("context"));
const chart = new AnswerChart(byId("answers"));
const alarms = new Alarms({
  banner: byId("alarm"),
  log: byId("log"),
  text: byId("log-text"),
  card: document.querySelector(".card.number"),
});

function status(state, words) {
  const place = byId("status");
  if (place.dataset.state !== state) place.dataset.state = state;
  if (byId("status-text").textContent !== words) byId("status-text").textContent = words;
}

function complain(words) {
  byId("error").textContent = words;
  byId("error").hidden = words === "";
}

// Beginning

async function begin() {
  try {
    page.model = await request("v1/model");
    page.recordings = (await request("v1/demo")).recordings;
  } catch (error) {
    if (error.status === 401) askForToken();
    else {
      status("bad", "no connection");
      complain(`The service cannot be used: ${error.message}.`);
    }
    return;
  }
  complain("");
  page.alarms = (page.model.alarms ?? []).map((alarm) => ({
    ...alarm,
    words: alarmWords(alarm, page.model),
  }));
  page.drivers = new Drivers(byId("channels"), byId("drivers-text"), page.model);
  describe(page.model);
  fillSources();
  choose();
  if (page.model.stream?.available === false) {
    byId("play").disabled = true;
    byId("source").disabled = true;
    complain("This model is served without streams: it is not causal. Serve it with --span.");
  }
  document.documentElement.dataset.ready = "true";
}

function askForToken() {
  const dialog = byId("token-dialog");
  byId("token-form").addEventListener(
    "submit",
    () => {
      setToken(byId("token").value);
      begin();
    },
    { once: true },
  );
  dialog.showModal();
}

function fillSources() {
  const has = (recording) => page.model.channels.every((name) => recording.channels.includes(name));
  const options = page.recordings.map((recording) => {
    const option = new Option(recording.title, recording.name);
    option.disabled = !has(recording);
    if (option.disabled) option.text += ` (has no ${missing(recording)})`;
    return option;
  });
  options.push(new Option("Open a CSV file …", FILE));
  byId("source").replaceChildren(...options, new Option("Watch a stream …", WATCH));
  byId("source").value = options.find((option) => !option.disabled)?.value ?? WATCH;
}

function missing(recording) {
  return page.model.channels.filter((name) => !recording.channels.includes(name)).join(", ");
}

// Choosing and playing

function choose() {
  halt();
  const { value } = byId("source");
  const watching = value === WATCH;
  byId("watch").hidden = !watching;
  byId("file-field").hidden = value !== FILE;
  for (const id of ["play-field", "speed", "thin-field"]) byId(id).hidden = watching;
  for (const id of ["signal", "context", "context-title"]) byId(id).hidden = watching;
  byId("signal-empty").hidden = !watching;
  const facts = page.recordings.find((recording) => recording.name === value);
  byId("about").textContent = facts?.about ?? ABOUT[value];
  byId("play").disabled = !facts && !(value === FILE && page.file);
  byId("restart").disabled = true;
  byId("play").textContent = "Start";
  status("idle", "idle");
}

function halt() {
  page.player?.stop();
  page.stream?.close();
  Object.assign(page, { player: null, stream: null, answers: [], ends: [], begin: 0, now: 0 });
  alarms.reset();
  page.drivers?.stop();
  signal.reset();
  chart.reset();
  showNumber(null, page.model);
  byId("sent").textContent = "nothing sent yet";
}

async function play() {
  const facts = page.recordings.find((recording) => recording.name === byId("source").value);
  const recording = facts ? new Recording(facts) : page.file;
  const player = new Player(recording, page.model.channels, {
    state: status,
    window: receive,
    refused: (message) => complain(`The service refused observations: ${message.message}`),
    failed: (error) => complain(`The recording cannot be loaded: ${error.message}.`),
    ended: () => {
      status("idle", "ended");
      byId("play").disabled = true;
      byId("play").textContent = "Ended";
    },
  });
  page.player = player;
  player.speed = Number(document.querySelector("input[name=speed]:checked").value);
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

function playOrPause() {
  if (page.player === null) {
    play();
    return;
  }
  page.player.pause(page.player.playing);
  byId("play").textContent = page.player.playing ? "Pause" : "Resume";
  if (!page.player.playing) status("idle", "paused");
}

async function open() {
  page.file = null;
  complain("");
  try {
    page.file = await openFile(byId("file").files[0], page.model.channels);
  } catch (error) {
    complain(`${error.message}.`);
  }
  choose();
}

async function watch(event) {
  event.preventDefault();
  halt();
  const stream = new Stream({
    state: status,
    hello: (message) => {
      page.now = message.last_time ?? page.now;
    },
    window: receive,
    ack: () => {},
    refused: (message) => complain(`The service says: ${message.message}`),
  });
  page.stream = stream;
  complain("");
  try {
    await stream.watch(byId("stream-id").value);
  } catch (error) {
    if (page.stream !== stream) return;
    status("bad", "not connected");
    complain(`The stream cannot be watched: ${error.message}.`);
  }
}

// Predictions

function receive(message) {
  const { prediction, time } = message;
  const recording = page.player?.recording;
  const span = page.model.stream?.span ?? 0;
  const known = recording && tells(recording, page.model, page.target);
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
  if (!page.player) {
    page.begin = page.answers[0].time;
    page.now = time;
  }
  showNumber(answer, page.model);
  alarms.update(answer.alarms, time, inWords(answer));
}

// Controls

byId("source").addEventListener("change", choose);
byId("play").addEventListener("click", playOrPause);
byId("restart").addEventListener("click", () => {
  choose();
  play();
});
byId("file").addEventListener("change", open);
byId("watch").addEventListener("submit", watch);
byId("speed").addEventListener("change", (event) => {
  if (page.player) page.player.speed = Number(event.target.value);
});
byId("dropped").addEventListener("input", (event) => {
  const share = Number(event.target.value);
  byId("dropped-text").textContent = `${share} %`;
  event.target.setAttribute("aria-valuetext", `${share} percent dropped`);
  page.player?.setDropped(share / 100);
});
byId("target").addEventListener("change", (event) => {
  page.target = Number(event.target.value);
  for (const answer of page.answers) {
    answer.number = readNumber(answer.prediction, page.target);
    answer.target = page.target;
  }
  chart.reset();
  showNumber(page.answers.at(-1) ?? null, page.model);
});
addEventListener("pagehide", () => {
  page.player?.stop();
  page.stream?.close();
});

begin();
startPictures(page, { signal, chart });
