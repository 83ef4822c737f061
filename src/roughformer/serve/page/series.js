// Whole series of a file: prediction with probabilities or interval and what drove it, or forecast.

import { lasting } from "./about.js";
import { post, request, setToken } from "./api.js";
import { bar } from "./drivers.js";
import { moment, number, percent, signed, tick } from "./format.js";

const byId = (id) => document.getElementById(id);
const MOST_ROWS = 200; // of the table
const STEPS = 40; // of a forecast
const state = { model: null, series: [], predictions: [], chosen: 0, explanation: null, forecast: null, turn: 0 };

function complain(words) {
  byId("error").textContent = words;
  byId("error").hidden = words === "";
}

async function begin() {
  try {
    state.model = await request("v1/model");
  } catch (error) {
    if (error.status !== 401) {
      complain(`The service cannot be used: ${error.message}.`);
      return;
    }
    byId("token-form").addEventListener(
      "submit",
      () => {
        setToken(byId("token").value);
        begin();
      },
      { once: true },
    );
    byId("token-dialog").showModal();
    return;
  }
  const { model } = state;
  const what = forecasts()
    ? `forecasts up to ${lasting(model.horizon, model.dated)} ahead`
    : model.classes
      ? `classification into ${model.classes.length} classes`
      : `regression of ${model.targets.join(", ")}`;
  byId("facts").textContent = `${what} from ${model.channels.join(", ")}`;
  byId("predict").textContent = forecasts() ? "Forecast" : "Predict";
  byId("drivers").hidden = forecasts();
  byId("ahead-field").hidden = byId("coverage-field").hidden = !forecasts();
  byId("signal-legend").hidden = forecasts();
  byId("forecast-legend").hidden = !forecasts();
  byId("columns").textContent =
    `A column of times (numbers or dates) and one for each channel: ${model.channels.join(", ")}; ` +
    "with a column of ids, several series. Long tables (channel, value) are read as well.";
  byId("pages").hidden = !model.stream?.available;
  document.documentElement.dataset.ready = "true";
  example();
}

const forecasts = () => state.model.task === "forecasting";

/** Reads a file or text, predicts all its series, and shows the first. */
async function predict(body, synthetic = false) {
  complain("");
  const turn = ++state.turn;
  byId("drop").dataset.busy = "true";
  try {
    const { series } = await request("v1/read", { method: "POST", body });
    const channels = state.model.channels;
    const { predictions } = forecasts()
      ? { predictions: [] }
      : await post("v1/predict", { series, channels });
    if (turn !== state.turn) return; // another file was chosen meanwhile
    Object.assign(state, { series, predictions, synthetic });
    byId("results").hidden = false;
    fillTable();
    choose(0);
  } catch (error) {
    if (turn !== state.turn) return;
    byId("results").hidden = true; // what is there is of other data
    complain(`${error.message}.`);
  }
  delete byId("drop").dataset.busy;
}

/** The prediction in words: the label, or the number. */
function words(prediction) {
  if (prediction.label !== undefined) return String(prediction.label);
  return [prediction.point].flat().map((value) => number(value)).join(", ");
}

function spread(prediction) {
  if (prediction.probabilities) return percent(Math.max(...Object.values(prediction.probabilities)));
  if (prediction.interval) {
    const each = Array.isArray(prediction.interval[0]) ? prediction.interval : [prediction.interval];
    return each.map(([low, high]) => `${number(low)} to ${number(high)}`).join(", ");
  }
  if (prediction.deviation !== undefined) {
    return [prediction.deviation].flat().map((value) => `± ${number(value, 2)}`).join(", ");
  }
  const quantiles = prediction.quantiles?.flat?.();
  if (quantiles?.length > 1) return `${number(quantiles[0])} to ${number(quantiles.at(-1))}`;
  return "";
}

function fillTable() {
  const rows = state.series.slice(0, MOST_ROWS).map((one, k) => {
    const row = document.createElement("tr");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet";
    button.textContent = one.id;
    button.addEventListener("click", () => choose(k));
    const cells = [button, `${one.times.length} rows`];
    if (!forecasts()) cells.push(words(state.predictions[k]), spread(state.predictions[k]));
    for (const content of cells) {
      const cell = document.createElement("td");
      cell.append(content);
      row.append(cell);
    }
    return row;
  });
  byId("table").replaceChildren(...rows);
  const count = state.series.length;
  byId("all-title").textContent =
    count > MOST_ROWS ? `The first ${MOST_ROWS} of ${count} series` : `All series (${count})`;
  byId("all").hidden = count < 2;
}

async function choose(k) {
  state.chosen = k;
  state.explanation = state.forecast = null;
  const one = state.series[k];
  byId("signal-title").textContent = state.synthetic
    ? "A synthetic example"
    : state.series.length > 1
      ? `Signal of ${one.id}`
      : "Signal";
  [...byId("table").rows].forEach((row, i) => {
    row.toggleAttribute("data-chosen", i === k);
  });
  if (forecasts()) {
    await forecast(k, one);
    return;
  }
  const prediction = state.predictions[k];
  byId("number").textContent = words(prediction);
  byId("deviation").textContent = prediction.probabilities ? "" : spread(prediction);
  const likely = Object.entries(prediction.probabilities ?? {}).sort((a, b) => b[1] - a[1]);
  byId("classes").replaceChildren(
    ...likely.slice(0, 8).map(([name, share]) => bar(name, percent(share), share, "up")),
  );
  byId("channels").replaceChildren();
  byId("drivers-text").textContent = "Looking for what drove it …";
  draw();
  try {
    const found = await post("v1/explain", { series: [one], channels: state.model.channels });
    if (state.chosen !== k) return;
    state.explanation = found;
    const most = Math.max(1e-12, ...found.channels.map((part) => Math.abs(part.importance)));
    const what = state.model.classes ? `the log-odds of ${found.target}` : "the answer";
    byId("drivers-text").textContent =
      `By how much each channel raised (+) or lowered (−) ${what}, against the same without it.`;
    byId("channels").replaceChildren(
      ...found.channels.map((part) =>
        bar(
          part.name,
          signed(part.importance, most),
          Math.abs(part.importance) / most,
          part.importance < 0 ? "down" : "up",
        ),
      ),
    );
    draw();
  } catch (error) {
    if (state.chosen === k) byId("drivers-text").textContent = `Not told: ${error.message}`;
  }
}

/** Asks for the forecast of a series, draws it, and tells its end in numbers. */
async function forecast(k, one) {
  const { channels, horizon, dated } = state.model;
  const share = Number(byId("ahead").value) / 100;
  const coverage = Number(byId("coverage").value);
  const ahead = Array.from({ length: STEPS }, (_, i) => ((i + 1) / STEPS) * share * horizon);
  byId("ahead-text").textContent = lasting(share * horizon, dated);
  draw();
  try {
    const found = await post("v1/forecast", { series: [one], channels, ahead, coverage });
    if (state.chosen !== k) return;
    [state.forecast] = found.forecasts;
    const [value, lower, upper] = ["value", "lower", "upper"].map(
      (name) => state.forecast[name].at(-1),
    );
    byId("number-title").textContent = `Forecast, ${lasting(share * horizon, dated)} ahead`;
    byId("number").textContent = value[0] === null ? "–" : number(value[0]);
    byId("deviation").textContent =
      `${channels[0]}: ${number(lower[0])} to ${number(upper[0])} with ${percent(coverage)}`;
    byId("classes").replaceChildren(
      ...channels.slice(1, 12).map((name, c) => {
        const item = document.createElement("li");
        item.textContent =
          `${name}: ${number(value[c + 1])} (${number(lower[c + 1])} to ${number(upper[c + 1])})`;
        return item;
      }),
    );
    draw();
  } catch (error) {
    if (state.chosen === k) complain(`${error.message}.`);
  }
}

/** The forecast of a channel: a band, and a line that begins at the last observation. */
function drawForecast(context, { x, y, color, c, one }) {
  const { times, value, lower, upper } = state.forecast;
  if (value[0][c] === null) return;
  context.fillStyle = context.strokeStyle = color;
  context.globalAlpha = 0.18;
  context.beginPath();
  times.forEach((time, i) => context.lineTo(x(time), y(upper[i][c])));
  times.toReversed().forEach((time, i) => context.lineTo(x(time), y(lower.at(-1 - i)[c])));
  context.fill();
  context.globalAlpha = 1;
  context.setLineDash([5, 3]);
  context.lineWidth = 1.6;
  context.beginPath();
  const last = one.values.findLastIndex((row) => row[c] !== null);
  if (last >= 0) context.moveTo(x(one.times[last]), y(one.values[last][c]));
  times.forEach((time, i) => context.lineTo(x(time), y(value[i][c])));
  context.stroke();
  context.setLineDash([]);
  context.lineWidth = 1;
}

/** A strip for each channel, its observations joined where they follow each other. */
function draw() {
  const canvas = byId("signal");
  const one = state.series[state.chosen];
  if (!one) return;
  const { channels } = state.model;
  const shown = Math.min(channels.length, 12);
  const strip = Math.max(64, Math.min(150, 420 / shown));
  const width = canvas.clientWidth;
  const height = shown * strip + 24;
  const ratio = devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const end = one.times.at(-1);
  const [first, last] = [one.times[0], state.forecast?.times.at(-1) ?? end];
  const x = (time) => 8 + ((width - 16) * (time - first)) / (last - first || 1);
  context.font = "12px system-ui, sans-serif";
  const windows = state.explanation?.windows ?? [];
  const most = Math.max(1e-12, ...windows.map((part) => Math.abs(part.importance)));
  for (const part of windows) {
    context.globalAlpha = (0.28 * Math.abs(part.importance)) / most;
    context.fillStyle = color(part.importance < 0 ? "--down" : "--up");
    context.fillRect(x(part.start), 0, x(part.end) - x(part.start), height - 24);
  }
  context.globalAlpha = 1;
  for (let c = 0; c < shown; c++) {
    const ahead = ["lower", "upper"].flatMap((name) => state.forecast?.[name].map((row) => row[c]) ?? []);
    const seen = [...one.values.map((row) => row[c]), ...ahead].filter((value) => value !== null);
    const low = seen.reduce((a, b) => Math.min(a, b), Infinity);
    const high = seen.reduce((a, b) => Math.max(a, b), -Infinity);
    const y = (value) => (c + 1) * strip - 8 - ((strip - 26) * (value - low)) / (high - low || 1);
    context.strokeStyle = color("--grid");
    context.beginPath();
    context.moveTo(8, (c + 1) * strip);
    context.lineTo(width - 8, (c + 1) * strip);
    context.stroke();
    context.strokeStyle = context.fillStyle = color(`--c${c % 6}`);
    context.beginPath();
    let joined = false;
    one.times.forEach((time, row) => {
      const value = one.values[row][c];
      if (value === null) return;
      if (joined) context.lineTo(x(time), y(value));
      else context.moveTo(x(time), y(value));
      joined = true;
      if (one.times.length < 400) context.fillRect(x(time) - 1, y(value) - 1, 2, 2);
    });
    context.stroke();
    if (state.forecast) drawForecast(context, { x, y, color: color(`--c${c % 6}`), c, one });
    const range = seen.length ? `${tick(Number(low.toPrecision(4)))} to ${tick(Number(high.toPrecision(4)))}` : "not observed";
    context.fillText(`${channels[c]}  (${range})`, 8, c * strip + 14);
  }
  if (state.forecast) {
    context.strokeStyle = color("--soft");
    context.setLineDash([2, 3]);
    context.beginPath();
    context.moveTo(x(end), 0);
    context.lineTo(x(end), height - 24);
    context.stroke();
    context.setLineDash([]);
  }
  context.fillStyle = color("--soft");
  context.fillText(moment(first, last - first), 8, height - 6);
  const words = moment(last, last - first);
  context.fillText(words, width - 8 - context.measureText(words).width, height - 6);
  canvas.setAttribute(
    "aria-label",
    `Series ${one.id}: ${one.times.length} rows of ${channels.join(", ")}` +
      (state.forecast ? ", with a forecast after its end" : ""),
  );
}

/** A synthetic series with the model's channels, so that nobody begins with an empty page. */
function example() {
  const { channels, dated, centre, spread } = state.model;
  const step = forecasts() ? state.model.horizon / 30 : 0.5;
  const rows = Array.from({ length: 60 }, (_, k) => {
    const values = channels.map((_, c) => {
      const wave = Math.sin(k / (4 + c) + c);
      return ((centre?.[c] ?? 0) + (spread?.[c] ?? 1) * wave).toPrecision(5);
    });
    const time = dated ? new Date(1.7e12 + k * step * 1000).toISOString() : (k * step).toFixed(4);
    return [time, ...values].join(",");
  });
  byId("text").value = [["time", ...channels].join(","), ...rows].join("\n");
  predict(byId("text").value, true);
}

byId("file").addEventListener("change", () => predict(byId("file").files[0]));
byId("paste").addEventListener("submit", (event) => {
  event.preventDefault();
  predict(byId("text").value);
});
byId("example").addEventListener("click", example);
for (const id of ["ahead", "coverage"]) {
  byId(id).addEventListener("change", () => state.series.length && choose(state.chosen));
}
for (const name of ["dragover", "drop"]) {
  addEventListener(name, (event) => {
    event.preventDefault();
    if (name === "drop" && event.dataTransfer.files.length) predict(event.dataTransfer.files[0]);
  });
}
addEventListener("resize", draw);
byId("theme").addEventListener("click", () => setTimeout(draw));
begin();
