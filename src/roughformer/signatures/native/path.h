// From a ragged batch to the rows of one window for V series at a time: cut times are placed
// between observations, dropped points are skipped, the window's ends are interpolated.
#pragma once
#include "abi.h"
#include "lanes.h"

// Where one cut time of every lane falls in its series: between the kept points a and b at
// fraction alpha (alpha = 0 and b = a: exactly at a, or outside the series, where the path is
// constant). Lanes with fewer windows repeat their last cut, so that nothing moves any more.
struct alignas(RF_BYTES) CutRow {
  S alpha[LANES];
  int32_t a[LANES], b[LANES];
};

struct Lane {
  const void* values;  // first row
  const double* times;
  const double* cuts;  // n_windows + 1 times, less shift since the first point
  double shift;
  int64_t length, n_windows, series;
  const uint32_t* kept;  // bitmap of kept points, null if all are
};

// ---- thinning -------------------------------------------------------------------------------


static inline U32 mix32(U32 x) {  // dropping.py: _mix
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  return x ^ (x >> 16);
}

// Selection sampling as in dropping.py, all lanes at once; writes the bitmaps of kept points.
static void thin(const uint32_t* keys, const int64_t* length, double fraction, uint32_t* const* bits,
                 int count) {
  U32 key = {};
  I32 need = {}, left = {};
  int64_t longest = 0;
  for (int l = 0; l < count; ++l) {
    const int64_t inner = length[l] > 2 ? length[l] - 2 : 0;
    int64_t drop = (int64_t)__builtin_floor(fraction * (double)length[l] + 0.5);
    if (drop > inner) drop = inner;
    key[l] = keys[l];
    need[l] = (int32_t)(inner - drop);
    left[l] = (int32_t)inner;
    if (length[l] > longest) longest = length[l];
  }
  for (int64_t word = 0; word * 32 < longest; ++word) {
    I32 kept = {};
    for (int64_t q = word ? 0 : 1; q < 32; ++q) {
      const uint32_t i = (uint32_t)(word * 32 + q);
      const I32 h = (I32)(mix32(key + (i * 0x9E3779B9u)) >> 9);
      const VF u = __builtin_convertvector(h, VF) * 1.1920928955078125e-07f;
      const I32 keep = (u * __builtin_convertvector(left, VF)) < __builtin_convertvector(need, VF);
      need += keep;  // keep is -1 where true
      left += left > 0;
      kept |= keep & (int32_t)(1u << q);
    }
    for (int l = 0; l < count; ++l)
      if (word <= (length[l] - 1) >> 5) bits[l][word] = (uint32_t)kept[l];
  }
  for (int l = 0; l < count; ++l) {
    const int64_t last = length[l] - 1;
    bits[l][0] |= 1u;
    bits[l][last >> 5] |= 1u << (last & 31);
    bits[l][(last >> 5) + 1] = 0;
  }
}

// The same as bytes, for up to LANES series; scratch has `words` for each.
static void thin_bytes(const RfThin* job, int64_t first, int count, uint32_t* scratch,
                       int64_t words) {
  uint32_t* bits[LANES] = {};
  for (int l = 0; l < count; ++l) bits[l] = scratch + l * words;
  thin(job->keys + first, job->lengths + first, job->drop, bits, count);
  for (int l = 0; l < count; ++l) {
    uint8_t* keep = job->keep + job->starts[first + l];
    for (int64_t i = 0; i < job->lengths[first + l]; ++i) keep[i] = bits[l][i >> 5] >> (i & 31) & 1;
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

// Largest i in [low, n-2] with t[i] - t[0] <= c, given that for low and not for n-1. Differences
// are exact where absolute cut times would round. Evenly spread cuts are `stride` points apart:
// look around there first. No branch depends on the data while the guess is good, so the searches
// of the lanes overlap in the processor.
static inline int64_t last_at_or_before(const double* t, int64_t n, double c, int64_t low,
                                        int64_t stride) {
  const double zero = t[0];
  const int64_t reach = stride / 2 + 2, guess = low + stride;
  int64_t size = reach;
  if (guess + reach < n && reach <= stride) {
    const int64_t from = guess - (int64_t)(t[guess] - zero > c) * reach;  // no branch: a coin toss
    __builtin_prefetch(t + guess + 2 * stride);
    if (t[from] - zero <= c && c < t[from + reach] - zero) {
      low = from;
      while (size > 1) {
        const int64_t half = size / 2;
        low += t[low + half] - zero <= c ? half : 0;
        size -= half;
      }
      return low;
    }
  }
  size = size < n - 1 - low ? size : n - 1 - low;
  while (t[low + size] - zero <= c) {
    low += size;
    size = 2 * size < n - 1 - low ? 2 * size : n - 1 - low;
  }
  while (size > 1) {
    const int64_t half = size / 2;
    low += t[low + half] - zero <= c ? half : 0;
    size -= half;
  }
  return low;
}

static void place_cuts(const Lane* lanes, int count, int64_t windows, CutRow* rows) {
  int64_t low[LANES], stride[LANES];
  for (int l = 0; l < count; ++l) {
    low[l] = 0;
    stride[l] = lanes[l].length / (lanes[l].n_windows > 0 ? lanes[l].n_windows : 1);
  }
  for (int64_t k = 0; k <= windows; ++k) {
    CutRow& row = rows[k];
    double part[LANES], gap[LANES];  // alpha = part / gap, divided for all lanes at once
    for (int l = 0; l < count; ++l) {
      const Lane& lane = lanes[l];
      const double* t = lane.times;
      const int64_t n = lane.length;
      const double c = lane.cuts[k <= lane.n_windows ? k : lane.n_windows] + lane.shift;
      int64_t a = 0, b = 0;
      part[l] = 0, gap[l] = 1;
      if (c >= t[n - 1] - t[0]) {
        a = b = n - 1;
      } else if (c > 0) {
        low[l] = last_at_or_before(t, n, c, low[l], stride[l]);
        a = low[l], b = a + 1;
        if (lane.kept) {
          b = kept_after(lane.kept, a);
          a = kept_at_or_before(lane.kept, a);
        }
        part[l] = c - (t[a] - t[0]);
        gap[l] = t[b] - t[a];
      }
      row.a[l] = (int32_t)a;
      row.b[l] = (int32_t)b;
    }
    for (int l = count; l < LANES; ++l) {
      row.a[l] = row.a[0], row.b[l] = row.b[0];
      part[l] = part[0], gap[l] = gap[0];
    }
    for (int l = 0; l < LANES; ++l) row.alpha[l] = (S)(part[l] / gap[l]);
    // A cut so close to a point that the fraction rounds to nothing is at that point.
    for (int l = 0; l < LANES; ++l) row.b[l] = row.alpha[l] > 0 ? row.b[l] : row.a[l];
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

static void window_bounds(const CutRow& start, const CutRow& stop, Window& w) {
  const I32 end = *(const I32*)stop.b - *(const I32*)start.a;
  const V alpha_end = *(const V*)stop.alpha;
  w.alpha_start = *(const V*)start.alpha;
  w.alpha_end = alpha_end > splat(0) ? alpha_end : splat(1);
  w.end = __builtin_convertvector(end, M);
  int32_t least = INT32_MAX, most = 0;
  for (int l = 0; l < LANES; ++l) {
    w.first[l] = start.a[l];
    const int32_t here = stop.b[l] - start.a[l];
    least = here < least ? here : least;
    most = here > most ? here : most;
  }
  w.min_end = least;
  w.max_end = most;
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
    transpose_rows(at, r);
    for (int l = 0; l < LANES; ++l) at[l] += LANES;
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
static void start_row(const RfJob* job, const Lane* lanes, const Window& w, const CutRow& start,
                      V* row, int d, const Rows& rows, bool masked) {
  const int time = job->time_scale ? 1 : 0;
  if (!masked) {
    const M inside = (w.alpha_start > splat(0)) & (w.end > splat_i(0));
    for (int c = 0; c < d; ++c) row[c] = inside ? w.alpha_start * rows.buffer[d + c] : splat(0);
    return;
  }
  for (int c = 0; c < d; ++c) row[c] = splat(0);
  for (int l = 0; l < LANES; ++l) {
    const S alpha = start.alpha[l];
    if (alpha == 0) continue;
    const int64_t a = start.a[l], b = start.b[l];
    if (time)
      row[0][l] = (S)(alpha * (lanes[l].times[b] - lanes[l].times[a]) *
                      job->time_scale[lanes[l].series]);
    for (int c = time; c < d; ++c)
      row[c][l] = alpha * (value_of(job, lanes[l], b, c - time) -
                           value_of(job, lanes[l], a, c - time));
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
