// Tokens of streams, as tokens/step.py defines them, one row after the other. A stream's path goes
// on from its last point, holds its value up to each window's end, and at each end its token is
// written down. What it remembers is in double precision, one row of each array of the job.
#pragma once

static inline double or_nan(bool known, double x) { return known ? x : __builtin_nan(""); }

// Observations of C channels: rows of a block (12, C). Sums count from the stream's first.
enum { N, X, XX, T, TT, TX, LOW, HIGH, FIRST, LAST, BEGIN, WHEN, KEPT };
// Rows of a block (4, ring, C).
static const int RECENT[4] = {N, X, LOW, HIGH};

// Everything of one call that does not depend on the stream.
struct Stepping {
  const RfStep* job;
  Waves waves;
  V* acc;            // (blocks, C, 2) clock words of the open window
  double *step;      // (d) increment
  double *next;      // (C) values at the end of a piece
  double *grown;     // (d^(n-1)) partial sums of one level
  double *block, *found, *product;  // (words)
  double *joined;    // (12, C)
  int64_t words;
  int C, d, n;
};

static size_t step_words(const RfStep* job) {
  const int d = job->channels + (job->time_scale != 0);
  return job->depth ? (size_t)word_count(d, job->depth) : 0;
}

static size_t step_bytes(const RfStep* job) {
  const size_t blocks = (size_t)((job->n_frequencies + LANES - 1) / LANES), C = job->channels;
  const size_t numbers = 4 * step_words(job) + (KEPT + 3) * C + 16;
  return blocks * (2 * C + 1) * sizeof(V) + numbers * sizeof(double) + 16 * 64;
}

// S <- S (x) exp(x): level k grows by ((x/k + S_1) (x) x/(k-1) + S_2) (x) ... (x) x. Longest words
// first, because they read the shorter ones; partial sums grow in place, from their end.
static void grow(double* signature, const double* x, double* grown, int64_t d, int n) {
  for (int k = n; k > 1; --k) {
    for (int64_t i = 0; i < d; ++i) grown[i] = x[i] / k + signature[i];
    int64_t size = d;
    for (int m = 2; m < k; ++m, size *= d) {
      const double* level = signature + level_at(d, m);
      const double share = 1.0 / (k - m + 1);
      for (int64_t p = size - 1; p >= 0; --p) {
        const double head = grown[p] * share;
        for (int64_t v = 0; v < d; ++v) grown[p * d + v] = head * x[v] + level[p * d + v];
      }
    }
    double* level = signature + level_at(d, k);
    for (int64_t p = 0; p < size; ++p)
      for (int64_t v = 0; v < d; ++v) level[p * d + v] += grown[p] * x[v];
  }
  for (int64_t i = 0; i < d; ++i) signature[i] += x[i];
}

// The path goes on to the values `s.next` at `when`.
static void move_to(Stepping& s, int64_t slot, double when) {
  const RfStep* job = s.job;
  double* held = job->held + slot * s.C;
  const double before = job->time[slot];
  if (s.n) {
    double* x = s.step;
    if (job->time_scale != 0) *x++ = (when - before) * job->time_scale;
    for (int c = 0; c < s.C; ++c) x[c] = s.next[c] - held[c];
    grow(job->local + slot * s.words, s.step, s.grown, s.d, s.n);
  }
  if (job->clocks)
    clock_piece(s.waves, held, s.next, s.C, S(1), (before + when) / 2 - job->opened[slot],
                (when - before) / 2, s.acc);
  memcpy(held, s.next, s.C * sizeof(double));
  job->time[slot] = when;
}

// ---- clock words: lanes are frequencies ------------------------------------------------------

static void load_clocks(Stepping& s, int64_t slot) {
  const int64_t F = s.job->n_frequencies, rows = 2 * s.C;
  const double* words = s.job->clocks + slot * rows * F;
  for (int64_t k = 0; k < s.waves.blocks; ++k)
    for (int64_t i = 0; i < rows; ++i) {
      const double* from = words + i * F + k * LANES;
      V& to = s.acc[k * rows + i];
      if ((k + 1) * LANES <= F) {
        to = *(const VU*)from;
      } else {
        to = V{};
        memcpy(&to, from, (F - k * LANES) * sizeof(double));
      }
    }
}

static void store_clocks(const Stepping& s, int64_t slot) {
  const int64_t F = s.job->n_frequencies, rows = 2 * s.C;
  double* words = s.job->clocks + slot * rows * F;
  for (int64_t k = 0; k < s.waves.blocks; ++k)
    for (int64_t i = 0; i < rows; ++i) {
      double* to = words + i * F + k * LANES;
      const V& from = s.acc[k * rows + i];
      if ((k + 1) * LANES <= F)
        *(VU*)to = from;
      else
        memcpy(to, &from, (F - k * LANES) * sizeof(double));
    }
}

// In a token, cosine and sine of a frequency stand side by side.
static void write_clocks(const Stepping& s, double* out) {
  const int64_t F = s.job->n_frequencies, rows = 2 * s.C;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < F; ++j)
      out[(i / 2 * F + j) * 2 + i % 2] = s.acc[j / LANES * rows + i][j % LANES];
}

// ---- signatures of the views -----------------------------------------------------------------

// The product of the last `context` windows: products of 1, 2, 4, ... windows are kept in rings of
// as many entries, one behind the other, and a context is a few of those side by side.
static void over_context(Stepping& s, int64_t slot, int64_t window, bool over) {
  const int64_t size = s.job->context;
  const size_t bytes = s.words * sizeof(double);
  int64_t largest = 1;
  while (2 * largest <= size) largest *= 2;
  double* rings = s.job->rings + slot * (2 * largest - 1) * s.words;
  memcpy(s.block, s.job->local + slot * s.words, bytes);
  int64_t back = 0;  // windows in `found`
  for (int64_t length = 1; length <= largest; length *= 2) {
    double* ring = rings + (length - 1) * s.words;
    double* here = ring + window % length * s.words;
    if ((size & length) && back == 0) {
      memcpy(s.found, s.block, bytes);
      back = length;
    } else if (size & length) {
      if (window >= back) {  // nothing was there before the first window
        memcpy(s.product, ring + (window - back) % length * s.words, bytes);
        chen(s.product, s.found, s.d, s.n);
        memcpy(s.found, s.product, bytes);
      }
      back += length;
    }
    memcpy(s.product, here, bytes);
    if (over) memcpy(here, s.block, bytes);
    if (2 * length <= largest) {
      chen(s.product, s.block, s.d, s.n);
      memcpy(s.block, s.product, bytes);
    }
  }
}

// A view as tokens have it: with a basepoint, behind a jump from the origin to `start`.
static void write_view(Stepping& s, const double* words, const double* start, double* out) {
  if (!s.job->basepoint) {
    memcpy(out, words, s.words * sizeof(double));
    return;
  }
  double* x = s.step;
  if (s.job->time_scale != 0) *x++ = 0;
  memcpy(x, start, s.C * sizeof(double));
  memset(out, 0, s.words * sizeof(double));
  grow(out, s.step, s.grown, s.d, s.n);
  chen(out, words, s.d, s.n);
}

static void write_words(Stepping& s, int64_t slot, int64_t window, double* out, bool over) {
  const RfStep* job = s.job;
  const size_t bytes = s.words * sizeof(double), values = s.C * sizeof(double);
  double *local = job->local + slot * s.words, *begin = job->begin + slot * s.C;
  if (job->local_at >= 0) write_view(s, local, begin, out + job->local_at);
  if (job->whole) {
    double* whole = job->whole + slot * s.words;
    memcpy(s.found, whole, bytes);
    chen(s.found, local, s.d, s.n);
    if (over) memcpy(whole, s.found, bytes);
    write_view(s, s.found, job->first + slot * s.C, out + job->global_at);
  } else if (job->rings) {
    double* starts = job->starts + slot * job->context * s.C;
    const int64_t oldest = window < job->context ? 0 : window - job->context + 1;
    if (over) memcpy(starts + window % job->context * s.C, begin, values);
    over_context(s, slot, window, over);
    write_view(s, s.found, oldest < window ? starts + oldest % job->context * s.C : begin,
               out + job->global_at);
  }
  if (job->clocks) write_clocks(s, out + job->clock_at);
  if (!over) return;
  memset(local, 0, bytes);
  memcpy(begin, job->held + slot * s.C, values);
  for (int64_t i = 0; job->clocks && i < s.waves.blocks * s.C * 2; ++i) s.acc[i] = V{};
}

// ---- observations ----------------------------------------------------------------------------

static void observe(const Stepping& s, int64_t slot, const double* values, double when) {
  const int C = s.C;
  double* seen = s.job->seen + slot * KEPT * C;
  const double* past = s.job->past + slot * KEPT * C;
  const double* range = s.job->range;
  for (int c = 0; c < C; ++c) {
    if (!(values[c] == values[c])) continue;
    const double low = range[c], high = range[C + c];
    const double cut = values[c] < low ? low : values[c] > high ? high : values[c];
    const double z = (cut - range[2 * C + c]) / range[3 * C + c];
    double* of = seen + c;
    const bool first = of[N * C] == 0;
    if (first) of[FIRST * C] = z, of[BEGIN * C] = when;
    const double* origin = past[N * C + c] > 0 ? past + c : of;
    const double x = z - origin[FIRST * C], t = when - origin[BEGIN * C];
    const double sums[] = {1, x, x * x, t, t * t, t * x};
    for (int i = N; i <= TX; ++i) of[i * C] += sums[i];
    if (first || z < of[LOW * C]) of[LOW * C] = z;
    if (first || z > of[HIGH * C]) of[HIGH * C] = z;
    of[LAST * C] = z;
    of[WHEN * C] = when;
  }
}

// What was seen in one stretch, then in the next; without observations all is 0.
static void join_seen(const double* a, const double* b, double* out, int C) {
  for (int c = 0; c < C; ++c) {
    const double *p = a + c, *q = b + c;
    const bool before = p[N * C] > 0, after = q[N * C] > 0;
    for (int i = N; i <= TX; ++i) out[i * C + c] = p[i * C] + q[i * C];
    const bool lower = !before || (after && q[LOW * C] < p[LOW * C]);
    const bool higher = !before || (after && q[HIGH * C] > p[HIGH * C]);
    out[LOW * C + c] = (lower ? q : p)[LOW * C];
    out[HIGH * C + c] = (higher ? q : p)[HIGH * C];
    out[FIRST * C + c] = (before ? p : q)[FIRST * C];
    out[BEGIN * C + c] = (before ? p : q)[BEGIN * C];
    out[LAST * C + c] = (after ? q : p)[LAST * C];
    out[WHEN * C + c] = (after ? q : p)[WHEN * C];
  }
}

// Number, sum, lowest and highest of channel c over the last `size` windows, the open one included.
static void last_windows(const Stepping& s, const double* now, const double* recent,
                         int64_t window, int64_t size, int c, double* out) {
  const int C = s.C;
  const int64_t ring = s.job->ring;
  for (int i = 0; i < 4; ++i) out[i] = now[RECENT[i] * C + c];
  for (int64_t age = 1; age < size && age <= window; ++age) {
    double entry[4];
    for (int i = 0; i < 4; ++i) entry[i] = recent[(i * ring + (window - age) % ring) * C + c];
    if (entry[0] == 0) continue;
    if (out[0] == 0 || entry[2] < out[2]) out[2] = entry[2];
    if (out[0] == 0 || entry[3] > out[3]) out[3] = entry[3];
    out[0] += entry[0];
    out[1] += entry[1];
  }
}

// observations.words_of
static void write_seen(Stepping& s, int64_t slot, int64_t window, double* out, bool over) {
  const RfStep* job = s.job;
  const int C = s.C;
  double *now = job->seen + slot * KEPT * C, *past = job->past + slot * KEPT * C;
  double* recent = job->recent + slot * 4 * job->ring * C;
  join_seen(past, now, s.joined, C);
  const int64_t half = job->recent_windows, quarter = half / 2 > 1 ? half / 2 : 1;
  const double unit = job->time_unit, end = job->time[slot];
  for (int c = 0; c < C; ++c) {
    const double count = now[N * C + c], first = s.joined[FIRST * C + c];
    if (job->seen_local_at >= 0) {
      double* words = out + job->seen_local_at + 4 * c;
      words[0] = __builtin_log1p(count);
      words[1] = or_nan(count > 0, first + now[X * C + c] / count);
      words[2] = or_nan(count > 0, now[LOW * C + c]);
      words[3] = or_nan(count > 0, now[HIGH * C + c]);
    }
    if (job->seen_global_at < 0) continue;
    double all[KEPT], last[4], latest[4];
    for (int i = 0; i < KEPT; ++i) all[i] = s.joined[i * C + c];
    last_windows(s, now, recent, window, half, c, last);
    last_windows(s, now, recent, window, quarter, c, latest);
    const double n = all[N], some = n > 1 ? n : 1;
    const double mean = all[X] / some, when = all[T] / some;
    const double variance = all[XX] / some - mean * mean;
    const double square = all[TT] / some, time_variance = square - when * when;
    const double covariance = all[TX] / some - when * mean;
    // A slope over less than a hundredth of the unit says nothing but noise.
    const bool apart = time_variance > (0.01 * unit) * (0.01 * unit) &&
                       time_variance > 2e-11 * square;
    double* words = out + job->seen_global_at + 15 * c;
    words[0] = __builtin_log1p(n);
    words[1] = or_nan(n > 0, first + mean);
    words[2] = or_nan(n > 0, all[LOW]);
    words[3] = or_nan(n > 0, all[HIGH]);
    words[4] = or_nan(n > 0, first);
    words[5] = or_nan(n > 0, all[LAST]);
    words[6] = or_nan(n > 1, variance > 0 ? __builtin_sqrt(variance) : 0);
    words[7] = or_nan(apart, covariance / time_variance * unit);
    words[8] = or_nan(n > 1, all[LAST] - first);
    words[9] = or_nan(n > 0, (end - all[WHEN]) / unit);
    words[10] = __builtin_log1p(last[0]);
    words[11] = or_nan(last[0] > 0, first + last[1] / last[0]);
    words[12] = or_nan(last[0] > 0, last[2]);
    words[13] = or_nan(last[0] > 0, last[3]);
    words[14] = or_nan(latest[0] > 0, first + latest[1] / latest[0]);
  }
  if (!over) return;
  memcpy(past, s.joined, KEPT * C * sizeof(double));
  for (int i = 0; i < 4; ++i)
    memcpy(recent + (i * job->ring + window % job->ring) * C, now + RECENT[i] * C,
           C * sizeof(double));
  memset(now, 0, KEPT * C * sizeof(double));
}

// ---- streams -----------------------------------------------------------------------------------

static void write_token(Stepping& s, int64_t slot, int64_t at, bool over) {
  const RfStep* job = s.job;
  const int64_t window = (int64_t)job->window[slot];
  double* out = job->out + at * job->width;
  job->ends[at] = job->time[slot];
  if (s.n) write_words(s, slot, window, out, over);
  if (job->seen) write_seen(s, slot, window, out, over);
  if (!over) return;
  job->opened[slot] = job->time[slot];
  job->window[slot] += 1;
}

// Takes in rows of one stream up to `end`, as long as there is room for a window more; returns the
// row that is left. `at` windows have ended.
static int64_t step_stream(Stepping& s, int64_t slot, int64_t row, int64_t end, int64_t& at) {
  const RfStep* job = s.job;
  const int C = s.C;
  const size_t bytes = C * sizeof(double);
  double* held = job->held + slot * C;
  for (; row < end; ++row) {
    const double* values = job->values + row * C;
    const bool fresh = job->points[slot] == 0;
    if (fresh) job->start[slot] = job->times[row];
    const double when = job->times[row] - job->start[slot];
    if (job->duration > 0)
      // Windows that end before the point: what is held stays.
      for (double stop; at < job->room && when > (stop = (job->window[slot] + 1) * job->duration);) {
        memcpy(s.next, held, bytes);
        move_to(s, slot, stop);
        write_token(s, slot, at++, true);
      }
    if (at == job->room) break;
    for (int c = 0; c < C; ++c) s.next[c] = values[c] == values[c] ? values[c] : held[c];
    if (fresh) {
      memcpy(held, s.next, bytes);
      if (job->begin) memcpy(job->begin + slot * C, s.next, bytes);
      if (job->first) memcpy(job->first + slot * C, s.next, bytes);
    } else {
      move_to(s, slot, when);
    }
    if (job->seen) observe(s, slot, values, when);
    job->points[slot] += 1;
    const double next = job->window[slot] + 1;
    if (job->duration > 0 ? when >= next * job->duration
                          : job->points[slot] > next * job->points_each)
      write_token(s, slot, at++, true);
  }
  return row;
}

static int64_t step(RfStep* job, void* scratch) {
  Stepping s;
  Arena arena = {(char*)scratch};
  const int C = job->channels;
  s.job = job;
  s.C = C;
  s.d = C + (job->time_scale != 0);
  s.n = job->depth;
  s.words = step_words(job);
  s.waves = {job->turns, job->fastest, -1, (job->n_frequencies + LANES - 1) / LANES, nullptr};
  s.waves.sinc = arena.take<V>(s.waves.blocks);
  s.acc = arena.take<V>(s.waves.blocks * C * 2);
  s.step = arena.take<double>(s.d);
  s.next = arena.take<double>(C);
  s.joined = arena.take<double>(KEPT * C);
  double** const buffers[] = {&s.grown, &s.block, &s.found, &s.product};
  for (double** words : buffers)
    *words = arena.take<double>(s.words);
  int64_t at = 0;
  for (; job->next < job->n_slots; ++job->next) {
    const int64_t slot = job->slots[job->next];
    if (job->clocks) load_clocks(s, slot);
    if (!job->offsets) {
      write_token(s, slot, at++, false);
      continue;
    }
    const int64_t end = job->offsets[job->next + 1];
    job->next_row = step_stream(s, slot, job->next_row, end, at);
    if (job->clocks) store_clocks(s, slot);
    if (job->next_row < end) break;
  }
  return at;
}
