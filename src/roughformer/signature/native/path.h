// From a ragged batch to the rows of one window for V series at a time: cut times are placed
// between observations, dropped points are skipped, the window's ends are interpolated.
#pragma once
#include "abi.h"
#include "lanes.h"

// Where a cut time falls in a series: between the kept points a and b at fraction alpha
// (alpha = 0: exactly at a, or outside the series, where the path is constant).
struct Cut {
  int32_t a, b;
  double alpha;
};

struct Lane {
  const void* values;  // first row
  const double* times;
  int64_t length, n_windows, series;
  Cut* cuts;           // n_windows + 1
  uint32_t* kept;      // bitmap of kept points, null if all are
};

// ---- thinning -------------------------------------------------------------------------------

static inline uint32_t mix32(uint32_t x) {  // dropping.py: _mix
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  return x ^ (x >> 16);
}

// Selection sampling as in dropping.py. The chain "kept so far" is sequential, so four series are
// interleaved by the caller's compiler-visible loop to hide its latency.
template <int K>
static void thin(const uint32_t* key, const int64_t* length, double fraction, uint32_t* const* bits) {
  uint64_t need[K], left[K];
  int64_t longest = 0;
  for (int q = 0; q < K; ++q) {
    const int64_t inner = length[q] > 2 ? length[q] - 2 : 0;
    int64_t drop = (int64_t)__builtin_floor(fraction * (double)length[q] + 0.5);
    if (drop > inner) drop = inner;
    need[q] = (uint64_t)(inner - drop);
    left[q] = (uint64_t)inner;
    if (length[q] > longest) longest = length[q];
    for (int64_t w = 0; w <= length[q] / 32 + 1; ++w) bits[q][w] = 0;
    bits[q][0] |= 1u;
    bits[q][(length[q] - 1) >> 5] |= 1u << ((length[q] - 1) & 31);
  }
  uint32_t counter = 0;
  for (int64_t i = 1; i < longest - 1; ++i) {
    counter += 0x9E3779B9u;
    for (int q = 0; q < K; ++q) {
      if (left[q] == 0) continue;
      const uint64_t chosen = (((uint64_t)mix32(key[q] + counter) * left[q]) >> 32) < need[q];
      need[q] -= chosen;
      left[q] -= 1;
      bits[q][i >> 5] |= (uint32_t)chosen << (i & 31);
    }
  }
}

static void pack_bits(const uint8_t* keep, int64_t n, uint32_t* bits) {
  for (int64_t w = 0; w <= n / 32 + 1; ++w) bits[w] = 0;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t bytes;
    memcpy(&bytes, keep + i, 8);
    bytes |= bytes >> 4;  // any non-zero byte counts as kept: fold it to its lowest bit
    bytes |= bytes >> 2;
    bytes |= bytes >> 1;
    bytes &= 0x0101010101010101ull;
    bits[i >> 5] |= (uint32_t)((bytes * 0x0102040810204080ull) >> 56) << (i & 31);
  }
  for (; i < n; ++i) bits[i >> 5] |= (uint32_t)(keep[i] != 0) << (i & 31);
}

static inline int64_t kept_at_or_before(const uint32_t* bits, int64_t i) {
  int64_t w = i >> 5;
  uint32_t word = bits[w] & (0xFFFFFFFFu >> (31 - (i & 31)));
  while (!word) word = bits[--w];  // point 0 is always kept
  return (w << 5) + 31 - __builtin_clz(word);
}

static inline int64_t kept_after(const uint32_t* bits, int64_t i) {
  ++i;
  int64_t w = i >> 5;
  uint32_t word = bits[w] & (0xFFFFFFFFu << (i & 31));
  while (!word) word = bits[++w];  // the last point is always kept
  return (w << 5) + __builtin_ctz(word);
}

static inline uint32_t kept_32(const uint32_t* bits, int64_t from, int64_t length) {
  if (from >= length) return 0;
  const int64_t w = from >> 5;
  const uint64_t two = (uint64_t)bits[w] | ((uint64_t)bits[w + 1] << 32);
  return (uint32_t)(two >> (from & 31));
}

// ---- cuts -----------------------------------------------------------------------------------

// Largest i with t[i] <= c, given t[0] <= c < t[n-1]; starts from a guess, so that evenly spread
// cuts cost a few comparisons and touch few cache lines.
static inline int64_t last_at_or_before(const double* t, int64_t n, double c, int64_t low,
                                        int64_t guess) {
  int64_t high = n - 1;  // invariant: t[low] <= c < t[high]
  if (guess > low && guess < high) {
    if (t[guess] <= c) {
      low = guess;
      for (int64_t step = 1; low + step < high; step *= 2) {
        if (t[low + step] > c) {
          high = low + step;
          break;
        }
        low += step;
      }
    } else {
      high = guess;
      for (int64_t step = 1; high - step > low; step *= 2) {
        if (t[high - step] <= c) {
          low = high - step;
          break;
        }
        high -= step;
      }
    }
  }
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (t[middle] <= c)
      low = middle;
    else
      high = middle;
  }
  return low;
}

static void place_cuts(const Lane& lane, const double* cuts) {
  const double* t = lane.times;
  const int64_t n = lane.length;
  int64_t low = 0, stride = n / (lane.n_windows > 0 ? lane.n_windows : 1);
  for (int64_t k = 0; k <= lane.n_windows; ++k) {
    const double c = cuts[k];
    Cut cut = {0, 0, 0.0};
    if (c >= t[n - 1]) {
      cut.a = cut.b = (int32_t)(n - 1);
    } else if (c > t[0]) {
      const int64_t i = last_at_or_before(t, n, c, low, low + stride);
      stride = i - low;
      low = i;
      int64_t a = i, b = i + 1;
      if (lane.kept) {
        a = kept_at_or_before(lane.kept, i);
        b = kept_after(lane.kept, i);
      }
      cut.a = (int32_t)a;
      cut.b = (int32_t)(c > t[a] ? b : a);
      cut.alpha = c > t[a] ? (c - t[a]) / (t[b] - t[a]) : 0.0;
    }
    lane.cuts[k] = cut;
  }
}

// ---- rows -----------------------------------------------------------------------------------

// One window of V series. Row s of lane l is its point first[l] + s, minus point first[l].
struct Window {
  int64_t first[LANES];
  V alpha_start, alpha_end;  // alpha_end = 1 where the window ends exactly at a point
  M end;                     // row at which the window ends, 0 = nothing inside
  int64_t min_end, max_end;
};

struct Rows {
  V* buffer;    // (capacity + 1, d)
  V* base;      // (d) what has been subtracted
  V* raw_last;  // (d) last kept row before interpolation
  char* spill;  // per lane: a padded copy of rows at the very end of the arrays
  int64_t capacity;
};

static void window_bounds(const Lane* lanes, int64_t k, Window& w) {
  w.min_end = INT64_MAX;
  w.max_end = 0;
  for (int l = 0; l < LANES; ++l) {
    const Lane& lane = lanes[l];
    int64_t end = 0;
    w.first[l] = 0;
    w.alpha_start[l] = 0;
    w.alpha_end[l] = 1;
    if (k <= lane.n_windows) {
      const Cut p = lane.cuts[k - 1], q = lane.cuts[k];
      w.first[l] = p.a;
      end = q.b - p.a;
      w.alpha_start[l] = (S)p.alpha;
      if (q.alpha > 0) w.alpha_end[l] = (S)q.alpha;
      // Both cuts outside the series on the same side: the path does not move.
      if (q.alpha == 0 && q.a == p.a && p.alpha == 0) end = 0;
    }
    w.end[l] = (I)end;
    if (end > w.max_end) w.max_end = end;
    if (end < w.min_end) w.min_end = end;
  }
}

// Transposes rows [from, from + n) of every lane into buffer rows [to, to + n), less the base.
template <class In>
static void load_values(const RfJob* job, const Lane* lanes, const Window& w, int64_t from, int64_t n,
                        const Rows& rows, int64_t to, int d, int time, bool set_base) {
  const int C = job->channels;
  if (C == 0 || n <= 0) return;
  const int64_t elements = n * C;
  const In* end = (const In*)job->values + job->n_rows * C;
  const In* at[LANES];
  const int64_t padded = (elements + LANES - 1) / LANES * LANES;
  for (int l = 0; l < LANES; ++l) {
    at[l] = (const In*)lanes[l].values + (w.first[l] + from) * C;
    if (at[l] + padded > end) {
      In* copy = (In*)(rows.spill + (size_t)l * (size_t)((rows.capacity + 1) * C + LANES) * 8);
      int64_t have = end - at[l];
      if (have < 0) have = 0;
      if (have > elements) have = elements;
      memcpy(copy, at[l], (size_t)have * sizeof(In));
      memset(copy + have, 0, (size_t)(padded - have) * sizeof(In));
      at[l] = copy;
    }
  }
  V* out = rows.buffer + to * d + time;
  int c = 0;
  for (int64_t e = 0; e < elements; e += LANES) {
    V r[LANES];
    for (int l = 0; l < LANES; ++l) r[l] = load_as_compute(at[l] + e);
    transpose(r);
    if (set_base && e < C)
      for (int j = 0; j < LANES && e + j < C; ++j) rows.base[time + e + j] = r[j];
    const int64_t m = elements - e < LANES ? elements - e : LANES;
    if (m == LANES) {
      for (int j = 0; j < LANES; ++j) {
        *out++ = r[j] - rows.base[time + c];
        if (++c == C) c = 0, out += time;
      }
    } else {
      for (int64_t j = 0; j < m; ++j) {
        *out++ = r[j] - rows.base[time + c];
        if (++c == C) c = 0, out += time;
      }
    }
  }
}

static void load_times(const RfJob* job, const Lane* lanes, const Window& w, int64_t from, int64_t n,
                       const Rows& rows, int64_t to, int d) {
  V* out = rows.buffer + to * d;
  const int distinct = job->uniform ? 1 : LANES;
  for (int64_t e = 0; e < n; e += LANES) {
    V r[LANES];
    const int64_t m = n - e < LANES ? n - e : LANES;
    for (int l = 0; l < distinct; ++l) {
      const double* t = lanes[l].times + w.first[l];
      const double t0 = *t, scale = job->time_scale[lanes[l].series];
      const int64_t have = lanes[l].length - w.first[l] - from - e;
      t += from + e;
      if (have >= LANES) {
        for (int j = 0; j < LANES; ++j) r[l][j] = (S)((t[j] - t0) * scale);
      } else {
        for (int j = 0; j < LANES; ++j) r[l][j] = j < have ? (S)((t[j] - t0) * scale) : S(0);
      }
    }
    if (job->uniform) {
      const V row = r[0];
      for (int64_t j = 0; j < m; ++j, out += d) *out = splat(row[j]);
    } else {
      transpose(r);
      for (int64_t j = 0; j < m; ++j, out += d) *out = r[j];
    }
  }
}

static void load_rows(const RfJob* job, const Lane* lanes, const Window& w, int64_t from, int64_t n,
                      const Rows& rows, int64_t to, int d, bool set_base) {
  const int time = job->time_scale ? 1 : 0;
  if (time) load_times(job, lanes, w, from, n, rows, to, d);
  if (job->value_dtype == RF_F32)
    load_values<float>(job, lanes, w, from, n, rows, to, d, time, set_base);
  else
    load_values<double>(job, lanes, w, from, n, rows, to, d, time, set_base);
}

static inline S value_of(const RfJob* job, const Lane& lane, int64_t row, int c) {
  const int64_t at = row * job->channels + c;
  return job->value_dtype == RF_F32 ? (S)((const float*)lane.values)[at]
                                    : (S)((const double*)lane.values)[at];
}

// x(window start) - x(first): where the path is when the window begins.
static void start_row(const RfJob* job, const Lane* lanes, const Window& w, int64_t k, V* row, int d,
                      const Rows& rows) {
  const int time = job->time_scale ? 1 : 0;
  bool masked = false;
  for (int l = 0; l < LANES; ++l) masked |= lanes[l].kept != 0;
  if (!masked) {
    const M inside = (w.alpha_start > splat(0)) & (w.end > splat_i(0));
    for (int c = 0; c < d; ++c) row[c] = inside ? w.alpha_start * rows.buffer[d + c] : splat(0);
    return;
  }
  for (int c = 0; c < d; ++c) row[c] = splat(0);
  for (int l = 0; l < LANES; ++l) {
    if (k > lanes[l].n_windows) continue;
    const Cut p = lanes[l].cuts[k - 1];
    if (p.alpha == 0) continue;
    if (time)
      row[0][l] = (S)(p.alpha * (lanes[l].times[p.b] - lanes[l].times[p.a]) *
                      job->time_scale[lanes[l].series]);
    for (int c = time; c < d; ++c)
      row[c][l] = (S)p.alpha * (value_of(job, lanes[l], p.b, c - time) -
                                value_of(job, lanes[l], p.a, c - time));
  }
}

// Turns raw buffer rows 1 ... n (rows from + 1 ... from + n of the window) into the path inside
// the window: dropped points repeat the row before, the end is interpolated, what follows repeats
// it. Repeated rows are zero increments, which change nothing.
static void shape_rows(const Lane* lanes, const Window& w, int64_t from, int64_t n, const Rows& rows,
                       int d, bool masked) {
  V* const buffer = rows.buffer;
  V* const raw = rows.raw_last;
  int64_t s = 1;
  if (!masked) {
    s = w.min_end - from;
    if (s > n) {  // nothing ends here; the next block continues from the last row as it is
      for (int c = 0; c < d; ++c) raw[c] = buffer[n * d + c];
      return;
    }
    if (s < 1) s = 1;
    if (s > 1)
      for (int c = 0; c < d; ++c) raw[c] = buffer[(s - 1) * d + c];
  }
  M bits = {};
  for (; s <= n; ++s) {
    M kept = splat_i(-1);
    if (masked) {
      if (s == 1 || ((s - 1) & 31) == 0)
        for (int l = 0; l < LANES; ++l)
          bits[l] = lanes[l].kept
                        ? (I)kept_32(lanes[l].kept, w.first[l] + from + s, lanes[l].length)
                        : (I)-1;
      kept = (bits & splat_i((I)1 << ((s - 1) & 31))) != splat_i(0);
    }
    const M at = splat_i((I)(from + s));
    const M is_end = w.end == at, past = w.end < at;
    V* row = buffer + s * d;
    const V* before = row - d;
    for (int c = 0; c < d; ++c) {
      const V here = row[c];
      const V ended = raw[c] + w.alpha_end * (here - raw[c]);
      V shaped = kept ? here : before[c];
      shaped = is_end ? ended : shaped;
      row[c] = past ? before[c] : shaped;
      raw[c] = kept ? here : raw[c];
    }
  }
}
