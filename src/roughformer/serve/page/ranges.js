// How much time and which values a chart shows.

const FEW = 40; // observations that a picture of the signal has, if they are rare
const STEPS = [1, 1.5, 2, 3, 5, 7, 10]; // round lengths, times a power of ten

/** The next round length: a picture must not stretch with every observation. */
function round(time) {
  const power = 10 ** Math.floor(Math.log10(time));
  return power * (STEPS.find((step) => step * power >= time * (1 - 1e-9)) ?? 10);
}

const between = (least, value, most) => Math.min(Math.max(value, least), most);

/** Time of signal that fits a width: seconds, or 3 to 14 windows where these last long or short. */
export function signalTime(width, pace, { recording, next }) {
  const seconds = width >= 1100 ? 14 : width >= 700 ? 10 : width >= 480 ? 7 : 5;
  const fits = between(3 * pace, seconds, 14 * pace);
  const { times } = recording;
  const few = next > FEW ? times[next - 1] - times[next - 1 - FEW] : 0;
  return few > fits ? round(Math.min(few, 14 * pace)) : fits;
}

/** The same for predictions, which come `pace` apart. */
export function answersTime(width, pace) {
  const seconds = width >= 900 ? 180 : width >= 560 ? 120 : 75;
  return between(40 * pace, seconds, 180 * pace);
}

/** Ranges of values that widen at once and narrow slowly, so that lanes do not jump. */
export class Ranges {
  constructor() {
    this.of = new Map();
  }

  /** Of the rows from `first` to `last`, and of `more` values. */
  update(lane, values, first, last, more = []) {
    let low = Infinity;
    let high = -Infinity;
    for (let row = first; row < last; row++) {
      const value = values[row];
      if (value < low) low = value;
      if (value > high) high = value;
    }
    for (const value of more) {
      if (value === null) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    let range = this.of.get(lane);
    if (low > high) return range ?? [0, 1];
    const room = 0.06 * (high - low) || 0.5;
    const wish = [low - room, high + room];
    range = range
      ? [
          Math.min(wish[0], range[0] + 0.03 * (wish[0] - range[0])),
          Math.max(wish[1], range[1] + 0.03 * (wish[1] - range[1])),
        ]
      : wish;
    this.of.set(lane, range);
    return range;
  }
}
