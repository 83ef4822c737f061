// All streams of the service on one page, the alarming ones first.

import { request, setToken } from "./api.js";
import { moment, number, percent } from "./format.js";

const EVERY = 1500; // milliseconds between looks
const DAY = 86400; // of dates, their day and time are shown
const KEPT = 120; // predictions of a stream that its curve shows
const byId = (id) => document.getElementById(id);
const histories = new Map(); // stream -> its last predictions, [time, value]
const cards = new Map(); // stream -> its card

function complain(words) {
  byId("error").textContent = words;
  byId("error").hidden = words === "";
}

/** The number that a card shows and draws: of classes the chance of the likeliest. */
function reading(prediction) {
  if (prediction === null) return { words: "–", value: null };
  if (prediction.probabilities) {
    const share = Math.max(...Object.values(prediction.probabilities));
    return { words: `${prediction.label} ${percent(share)}`, value: share };
  }
  const [value] = [prediction.point].flat();
  const ends = prediction.interval?.flat().slice(0, 2).map((end) => number(end));
  return { words: number(value), value, between: ends ? `${ends.join(" to ")}; ` : "" };
}

function newCard(id) {
  const card = document.createElement("li");
  card.className = "card";
  const link = document.createElement("a");
  link.href = `./#${new URLSearchParams({ source: "(watch)", stream: id })}`;
  link.textContent = id;
  const words = document.createElement("p");
  words.className = "reading";
  const canvas = document.createElement("canvas");
  const note = document.createElement("p");
  note.className = "hint";
  card.append(link, words, canvas, note);
  cards.set(id, card);
  return card;
}

function drawCurve(canvas, points, alarming) {
  const ratio = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  if (points.length < 2) return;
  const values = points.map(([, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const style = getComputedStyle(document.documentElement);
  pen.strokeStyle = style.getPropertyValue(alarming ? "--alarm" : "--accent").trim();
  pen.lineWidth = 1.6;
  pen.beginPath();
  for (const [time, value] of points) {
    pen.lineTo(
      2 + ((width - 4) * (time - first)) / (last - first || 1),
      height - 3 - ((height - 6) * (value - low)) / (high - low || 1),
    );
  }
  pen.stroke();
}

function show({ streams, count }) {
  const alarming = (stream) => stream.alarms.some((alarm) => alarm.active);
  const n = streams.filter(alarming).length;
  byId("summary").textContent =
    count === 0
      ? "No stream is open. Open one over HTTP or WebSocket, or play a recording on the monitor."
      : `${count} streams, ${n} alarming` + (count > streams.length ? `; the first ${streams.length}` : "");
  for (const id of [...cards.keys()]) {
    if (!streams.some((stream) => stream.id === id)) {
      cards.get(id).remove();
      cards.delete(id);
      histories.delete(id);
    }
  }
  streams.forEach((stream, place) => {
    const card = cards.get(stream.id) ?? newCard(stream.id);
    const { words, value, between = "" } = reading(stream.prediction);
    const history = histories.get(stream.id) ?? [];
    if (value !== null && !(history.at(-1)?.[0] >= stream.time)) history.push([stream.time, value]);
    histories.set(stream.id, history.slice(-KEPT));
    const [, text, canvas, note] = card.children;
    text.textContent = words;
    const active = stream.alarms.filter((alarm) => alarm.active);
    card.classList.toggle("alarming", active.length > 0);
    const notes = active.map((alarm) => `${alarm.name}, since ${moment(alarm.since, DAY)}`);
    const last = stream.last_time === null ? "–" : moment(stream.last_time, DAY);
    note.textContent = between + (notes.length ? notes.join("; ") : `last observation at ${last}`);
    // In place already: nothing moves under the reader's eyes.
    if (byId("ward").children[place] !== card) {
      byId("ward").insertBefore(card, byId("ward").children[place] ?? null);
    }
    drawCurve(canvas, histories.get(stream.id), active.length > 0);
  });
}

async function look() {
  try {
    if (!byId("facts").dataset.told) {
      const model = await request("v1/model");
      byId("facts").textContent = `streams of ${model.channels.join(", ")}`;
      byId("facts").dataset.told = "true";
    }
    show(await request("v1/streams"));
    complain("");
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    if (error.status === 401) {
      byId("token-form").addEventListener(
        "submit",
        () => {
          setToken(byId("token").value);
          look();
        },
        { once: true },
      );
      byId("token-dialog").showModal();
      return;
    }
    complain(`The service cannot be used: ${error.message}. It is asked again.`);
  }
  setTimeout(look, EVERY);
}

look();
