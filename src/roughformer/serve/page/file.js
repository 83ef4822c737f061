// A recording from a file of the visitor.

import { request } from "./api.js";
import { Recording } from "./recording.js";

const LARGEST = 200e6; // bytes
const TIMES = ["time", "times", "t", "seconds", "timestamp"];
const TRUTH = "truth";

/**
 * One series with the truth, which is read here, or else any file that training reads, of which the
 * service tells the first series. Throws an Error in words for people.
 */
export async function openFile(file, channels) {
  if (file.size > LARGEST) throw new Error(`${file.name} is larger than ${LARGEST / 1e6} MB`);
  try {
    return readHere(file, await file.text(), channels);
  } catch (error) {
    const first = await firstSeries(file, channels).catch(() => null);
    if (first === null) throw error;
    return first;
  }
}

async function firstSeries(file, channels) {
  const { series } = await request("v1/read", { method: "POST", body: file });
  const { id, times, values } = series[0];
  const title = series.length > 1 ? `${id} of ${file.name}` : file.name;
  const recording = new Recording({ name: file.name, title, channels, seconds: 0, truth: null });
  times.forEach((now, row) => recording.add(now, values[row].map((x) => x ?? NaN)));
  return whole(recording, file);
}

function whole(recording, file) {
  if (recording.times.length < 2) throw new Error(`${file.name} has fewer than two rows`);
  recording.start = recording.times[0];
  recording.end = recording.times.at(-1);
  recording.loadedTo = recording.end;
  return recording;
}

/**
 * Columns: the time (in the unit that the model was trained with), the channels by name, and, if
 * it is known, "truth". What is empty was not observed.
 */
function readHere(file, text, channels) {
  const lines = text.split(/\r?\n/);
  const names = lines[0].split(",").map((name) => name.trim().replace(/^"(.*)"$/, "$1"));
  const time = names.findIndex((name) => TIMES.includes(name.toLowerCase()));
  if (time < 0) throw new Error(`${file.name} has no column ${TIMES.join(", ")}`);
  const columns = channels.map((name) => names.indexOf(name));
  const missing = channels.filter((_, c) => columns[c] < 0);
  if (missing.length) throw new Error(`${file.name} has no column ${missing.join(", ")}`);
  const truth = names.indexOf(TRUTH);
  const recording = new Recording({
    name: file.name,
    title: file.name,
    channels,
    seconds: 0,
    truth: truth < 0 ? null : { name: TRUTH, unit: "" },
  });
  let last = -Infinity;
  lines.forEach((line, row) => {
    if (row === 0 || line.trim() === "") return;
    const cells = line.split(",");
    const number = (at) => {
      const text = (cells[at] ?? "").trim();
      const value = text === "" || text.toLowerCase() === "nan" ? NaN : Number(text);
      if (text !== "" && Number.isNaN(value) && text.toLowerCase() !== "nan") {
        throw new Error(`${file.name}, line ${row + 1}: ${text.slice(0, 30)} is no number`);
      }
      return value;
    };
    const now = number(time);
    if (!(now > last)) {
      throw new Error(`${file.name}, line ${row + 1}: times must increase, got ${cells[time]}`);
    }
    last = now;
    recording.add(now, columns.map(number));
    if (truth >= 0) recording.addTruth(now, number(truth));
  });
  return whole(recording, file);
}
