// Numbers and times for people.

/** About three digits that matter, never more than needed. */
export function number(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-4)) return value.toExponential(digits - 1);
  const places = size === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return value.toFixed(Math.min(places, 6));
}

/** A number of an axis: no more digits than it has. */
export function tick(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-4)) return value.toExponential(1);
  return String(Number(value.toPrecision(6)));
}

/** A number as someone chose it: 32, not 32.0. */
export function plain(value, digits = 4) {
  return String(Number(value.toPrecision(digits)));
}

/** A change, with as many places as two digits of `yardstick` have: less does not matter. */
export function signed(value, yardstick = value) {
  const size = Math.abs(yardstick) || 1;
  if (!Number.isFinite(size) || size >= 1e6 || size < 1e-4) return value.toExponential(1);
  const places = Math.min(Math.max(1 - Math.floor(Math.log10(size)), 0), 6);
  const text = Math.abs(value).toFixed(places);
  if (Number(text) === 0) return text;
  return `${value < 0 ? "−" : "+"}${text}`;
}

/** Whole percents; none and all only of what is exactly so. */
export function percent(share) {
  const whole = Math.round(100 * share);
  if (whole === 0 && share > 0) return "< 1 %";
  if (whole === 100 && share < 1) return "> 99 %";
  return `${whole} %`;
}

const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
];

/** A time of a stream: m:ss from its start, or the time of day if it is of the calendar. */
export function clock(time) {
  if (!Number.isFinite(time)) return "–";
  if (time > 1e8) {
    const scale = time > 1e11 ? 1 : 1000; // milliseconds or seconds since 1970
    return new Date(time * scale).toISOString().slice(11, 19);
  }
  const whole = Math.floor(Math.abs(time) + 1e-6);
  const seconds = String(whole % 60).padStart(2, "0");
  return `${time < 0 ? "−" : ""}${Math.floor(whole / 60)}:${seconds}`;
}

/** A time of a series: dates by the length of what is shown, else the number. */
export function moment(time, span) {
  if (time > 1e8 && time < 1e11) {
    const text = new Date(1000 * time).toISOString(); // as written: no zone of the browser's
    if (span > 172800) return text.slice(0, 10);
    return span > 43200 ? `${text.slice(5, 10)} ${text.slice(11, 16)}` : text.slice(11, 19);
  }
  return tick(Number(time.toPrecision(5)));
}

/** Round times for about `count` ticks: parts of minutes and hours, where they are as long. */
export function timeTicks(low, high, count) {
  const wish = (high - low) / Math.max(count, 1);
  const step = STEPS.find((x) => x >= wish);
  if (wish < 1 || step === undefined) return ticks(low, high, count);
  const found = [];
  for (let time = step * Math.ceil(low / step); time <= high; time += step) found.push(time);
  return found;
}

/** Round steps for about `count` ticks between `low` and `high`. */
export function ticks(low, high, count) {
  const wish = (high - low) / Math.max(count, 1);
  if (!(wish > 0) || !Number.isFinite(wish)) return [];
  const power = 10 ** Math.floor(Math.log10(wish));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= wish) ?? 10);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) {
    found.push(k * step);
  }
  return found;
}
