// What the model is, in words: the line at the top, legends, names of targets.

import { MOST_CLASSES } from "./answers.js";
import { number, percent, plain } from "./format.js";

const byId = (id) => document.getElementById(id);

/** A target without a name is called by its number. */
export function targetName(model, target) {
  const name = model.targets?.[target] ?? "";
  return /^\d*$/.test(name) ? "" : name;
}

/** Whether a recording's true value is what the model predicts; a name that was not told may be. */
export function tells(recording, model, target) {
  if (model.classes || !recording.truthName) return false;
  const name = targetName(model, target).toLowerCase();
  const truth = recording.truthName.toLowerCase();
  const first = truth.split(/\s+/).map((word) => word[0]).join("");
  return truth === "truth" || name === "" || name === truth || name === first;
}

export const forecasts = (model) => model.task === "forecasting";

/** A duration in words: of seconds in the unit that fits, of other units the number. */
export function lasting(time, dated) {
  if (!dated) return plain(time, 3);
  const [name, size] = [["days", 86400], ["hours", 3600], ["minutes", 60], ["seconds", 1]].find(
    ([, seconds]) => time >= 2 * seconds || seconds === 1,
  );
  return `${number(time / size)} ${name}`;
}

/** A forecaster has its answers in the picture of the signal, and no windows that drove them. */
export function arrange(model) {
  for (const part of document.querySelectorAll("[data-of=predictions]")) part.hidden = forecasts(model);
  for (const part of document.querySelectorAll("[data-of=forecasts]")) part.hidden = !forecasts(model);
  if (!forecasts(model)) return;
  byId("number-title").textContent = `Forecast, ${lasting(model.horizon, model.dated)} ahead`;
}

export function describe(model) {
  const { channels, classes, targets, stream } = model;
  const many = (list, most) =>
    list.slice(0, most).join(", ") + (list.length > most ? `, … (${list.length})` : "");
  const names = (targets ?? []).map((name, i) => targetName(model, i) || `number ${name}`);
  const what = classes ? `classes ${many(classes, 4)}` : many(names, 4);
  let when = "at the end of every window";
  if (stream?.span) when = `from the last ${plain(stream.span)} s, every ${plain(stream.every)} s`;
  if (stream?.available === false) when = "no streams";
  byId("facts").textContent = forecasts(model)
    ? `forecasts of ${many(channels, 6)}, a new one every ${lasting(stream.every, model.dated)}`
    : `${what} of ${many(channels, 6)}; ${when}`;
  byId("window-word").textContent = stream?.span ? "prediction" : "window end";
  byId("target").replaceChildren(...names.map((name, i) => new Option(name, i)));
  byId("target-field").hidden = names.length < 2;
}

/** What is in the chart of predictions, as far as this kind of signal has it. */
export function legend(model, { watching, truth }) {
  const { classes, stream } = model;
  let words = model.quantiles ? "between the outer quantiles" : "± 1 and 2 standard deviations";
  if (model.coverage) words = `interval that holds ${percent(model.coverage)} of the time`;
  const spread = model.coverage || model.uncertainty !== "none" ? [["band", words]] : [];
  const truths = stream?.span ? [["true", `true mean of ${plain(stream.span)} s`]] : [];
  truths.push(["moment", "true value"]);
  const keys = classes
    ? classes.slice(0, MOST_CLASSES).map((name, i) => [`c${i}`, String(name)])
    : [["line", "prediction"], ...spread, ...(truth && !watching ? truths : [])];
  if (!watching) keys.push(["drop", "share dropped"]);
  byId("answers-legend").replaceChildren(
    ...keys.map(([kind, words]) => {
      const [item, key] = [document.createElement("span"), document.createElement("span")];
      key.className = `key ${kind}`;
      item.append(key, words);
      return item;
    }),
  );
}
