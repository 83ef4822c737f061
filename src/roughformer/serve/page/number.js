// The card of the current prediction: the large number, how sure it is, the truth beside it.

import { MOST_CLASSES } from "./answers.js";
import { bar } from "./drivers.js";
import { number, percent, plain } from "./format.js";

const byId = (id) => document.getElementById(id);

/** In a few words, without the unit. */
export function inWords(answer) {
  if (answer.number) return number(answer.number.point);
  const { label } = answer.prediction;
  return `${label} ${percent(answer.probabilities?.[label] ?? 0)}`;
}

/** Fills the card; null: nothing was said yet. */
export function showNumber(answer, model) {
  const place = byId("number");
  const classes = byId("classes");
  if (!answer) {
    place.textContent = "–";
    place.dataset.value = "";
    delete place.dataset.time;
    for (const id of ["unit", "deviation", "truth"]) byId(id).textContent = "";
    classes.hidden = true;
    return;
  }
  place.dataset.time = answer.time;
  if (answer.number) {
    const { point, deviation, low, high } = answer.number;
    place.textContent = number(point);
    place.dataset.value = point;
    byId("unit").textContent = answer.unit;
    const sure = model.coverage ? ` (${percent(model.coverage)} of the time)` : "";
    const between = low < high ? `${number(low)} to ${number(high)}${sure}` : "";
    const around = `± ${number(deviation ?? 0, 2)} (standard deviation)`;
    byId("deviation").textContent = deviation === null ? between : around;
    const known = Number.isFinite(answer.truth);
    const mean = model.stream?.span ? "true mean" : "true";
    byId("truth").textContent = known
      ? `${mean} ${number(answer.truth, Math.abs(answer.truth) < 100 ? 3 : 4)}, off by ${plain(Math.abs(point - answer.truth), 2)}`
      : "";
    byId("truth").dataset.value = known ? answer.truth : "";
    return;
  }
  place.textContent = String(answer.prediction.label);
  place.dataset.value = String(answer.prediction.label);
  byId("deviation").textContent = percent(answer.probabilities?.[answer.prediction.label] ?? 0);
  classes.hidden = false;
  const chances = model.classes.slice(0, MOST_CLASSES).map((name, i) => {
    const chance = answer.probabilities?.[name] ?? 0;
    return bar(String(name), percent(chance), chance, `c${i}`);
  });
  classes.replaceChildren(...chances);
}
