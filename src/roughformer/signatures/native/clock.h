// Words of harmonic clocks with the path. On a straight piece of the path with increment dx,
// middle m and duration h, exactly:  integral of exp(iwu) dx(u) = dx exp(iwm) sin(wh/2) / (wh/2).
// This form stays accurate when pieces are short; differences of exponentials would not. Lanes are
// frequencies; phases are counted in turns and reduced in double precision.
#pragma once

static inline V polynomial(const S* c, int degree, V z) {
  V value = splat(c[degree]);
  for (int i = degree - 1; i >= 0; --i) value = value * z + c[i];
  return value;
}

// exp(2 pi i f) for |f| <= 1/2
static inline V cos_turns(V f) { return polynomial(COS_TURNS, TURNS_DEGREE, f * f); }
static inline V sin_turns_over(V f) { return polynomial(SIN_TURNS, TURNS_DEGREE, f * f); }

static inline V fraction_of_turn(VD u) {
  const double big = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to whole turns
  return __builtin_convertvector(u - ((u + big) - big), V);
}

// Frequencies of a clock, and the factors sin(wh/2) / (wh/2) of the duration they were last for.
struct Waves {
  const double* turns;
  double fastest, known;
  int64_t blocks;
  V* sinc;
};

// Adds a piece from x to y to the words `acc (blocks, C, 2)`: its middle and half its duration in
// units of the clock, and the share of the increment that counts.
template <class In>
static inline void clock_piece(Waves& waves, const In* x, const In* y, int C, S share,
                               double middle, double half, V* acc) {
  // Regular sampling: the factor of the piece before serves again, if it is the same but for
  // the rounding of stamps that this type cannot see.
  const bool same = __builtin_fabs(half - waves.known) <= (RF_DOUBLE ? 1e-15 : 1e-8) * half;
  const bool slow = half * waves.fastest <= 0.5;  // no more than half a turn: no reduction
  if (!same) waves.known = half;
  for (int64_t k = 0; k < waves.blocks; ++k) {
    const VD turns = *(const VDU*)(waves.turns + k * LANES);
    if (!same) {
      const VD g = turns * half;
      if (slow) {
        waves.sinc[k] =
            sin_turns_over(__builtin_convertvector(g, V)) * splat(S(0.15915494309189535));
      } else {
        const V f = fraction_of_turn(g), z = __builtin_convertvector(g, V);
        const V small = f == z ? splat(1) : f / (z == splat(0) ? splat(1) : z);
        waves.sinc[k] = sin_turns_over(f) * small * splat(S(0.15915494309189535));
      }
    }
    const V f = fraction_of_turn(turns * middle), sinc = waves.sinc[k];
    const V cosine = cos_turns(f) * sinc, sine = f * sin_turns_over(f) * sinc;
    V* sums = acc + k * C * 2;
    for (int c = 0; c < C; ++c) {
      const V dx = splat(((S)y[c] - (S)x[c]) * share);
      sums[2 * c] += dx * cosine;
      sums[2 * c + 1] += dx * sine;
    }
  }
}

template <class In>
static void clock_window(const RfClock* job, int64_t b, int64_t k, V* acc, V* sinc) {
  const int C = job->channels;
  const int64_t F = job->n_frequencies, blocks = (F + LANES - 1) / LANES, W = job->n_windows;
  const double* t = job->times + job->time_starts[b];
  const In* x = (const In*)job->values + job->starts[b] * C;
  const double* since = job->since + b * (W + 1);
  const double zero = t[0], begin = since[k], finish = since[k + 1];
  const double origin = job->local ? begin : since[0];
  const double duration = job->local ? finish - begin : since[W] - since[0];
  const double scale = !job->per_duration ? 1 : duration > 0 ? 1 / duration : 0;
  for (int64_t i = 0; i < blocks * C * 2; ++i) acc[i] = V{};
  Waves waves = {job->turns, job->fastest, -1, blocks, sinc};
  // From the last point at or before the window's start.
  int64_t s = 0;
  for (int64_t high = job->lengths[b]; high - s > 1;) {
    const int64_t middle = s + (high - s) / 2;
    (t[middle] - zero <= begin ? s : high) = middle;
  }
  for (; s + 1 < job->lengths[b] && t[s] - zero < finish; ++s) {
    const double a = t[s] - zero, e = t[s + 1] - zero;
    const double from = a < begin ? begin : a, to = e > finish ? finish : e;
    const double h = to - from;
    if (!(h > 0)) continue;
    const double middle = ((from + to) / 2 - origin) * scale;
    clock_piece(waves, x + s * C, x + (s + 1) * C, C, (S)(h / (e - a)), middle, h / 2 * scale, acc);
  }
}

template <class Out>
static void store_clock(const RfClock* job, int64_t b, int64_t k, const V* acc) {
  Out* out = (Out*)job->out + b * job->series_stride + k * job->window_stride;
  const int C = job->channels;
  for (int64_t j = 0; j < job->n_frequencies; ++j)
    for (int c = 0; c < C; ++c)
      for (int w = 0; w < 2; ++w)
        out[(c * job->n_frequencies + j) * 2 + w] =
            (Out)acc[(j / LANES * C + c) * 2 + w][j % LANES];
}

static size_t clock_bytes(const RfClock* job) {
  const size_t blocks = (size_t)((job->n_frequencies + LANES - 1) / LANES);
  return blocks * (size_t)(2 * job->channels + 1) * sizeof(V) + 256;
}

static void clock(const RfClock* job, int64_t b, int64_t k, void* scratch) {
  Arena arena = {(char*)scratch};
  const size_t blocks = (size_t)((job->n_frequencies + LANES - 1) / LANES);
  V* acc = arena.take<V>(blocks * (size_t)(2 * job->channels));
  V* sinc = arena.take<V>(blocks);
  if (job->value_dtype == RF_F32)
    clock_window<float>(job, b, k, acc, sinc);
  else
    clock_window<double>(job, b, k, acc, sinc);
  if (job->out_dtype == RF_F32)
    store_clock<float>(job, b, k, acc);
  else
    store_clock<double>(job, b, k, acc);
}
