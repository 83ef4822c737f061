// Fourier integrals of whole paths by a non-uniform fast transform: this is the part before the
// FFT. The density x' of a piecewise-linear path, smoothed by a bump phi, is sampled at the nodes
// m = 0, 1, ... of an even grid (times are in steps of that grid, from the series' first point):
//   g_m = integral of phi(m - v) x'(v) dv = sum over points of (change of slope) * Phi(m - v_i),
// with Phi the integral of phi, a step that rises from 0 to 1 over `width` nodes. Each point
// touches `width` nodes; behind them the sum is the slope itself, so nothing cancels but slopes of
// neighbouring pieces. All in double precision. Lanes are nodes.
#pragma once

// A piece shorter than this (in grid steps) is a jump: its slope would cost digits.
static const double JUMP = 1.52587890625e-05;  // 2^-16

// Polynomial tables have PAD columns more on either side (0 before, the end value behind), so that
// a point's values can be taken at whole vectors of nodes: loads of the nodes then meet stores of
// the same place and size, which processors hand over at once; others would wait for the memory.
enum { PAD = 8 };

// Values at the W + LANES nodes from the vector that holds node p on; z = p - v, `in` = p % LANES.
template <int W>
static inline void node_values(const double* table, int degree, double z, int64_t in, V* k) {
  enum { STRIDE = W + 2 * PAD, VECTORS = W / LANES + 1 };
  const V y = splat(2 * z - 1);
  const double* row = table + degree * STRIDE + PAD - in;
  for (int b = 0; b < VECTORS; ++b) k[b] = *(const VU*)(row + b * LANES);
  for (int i = degree - 1; i >= 0; --i) {
    row -= STRIDE;
    for (int b = 0; b < VECTORS; ++b) k[b] = k[b] * y + *(const VU*)(row + b * LANES);
  }
}

// The kept points of one series, in order; bits null: all.
struct KeptPoints {
  const uint32_t* bits;
  int64_t at, n;
  int64_t next() {
    if (at + 1 >= n) return n;
    at = bits ? kept_after(bits, at) : at + 1;
    return at;
  }
};

template <class In, int W>
struct Spreader {
  const RfSpread* job;
  double* grid;      // (channels, capacity) nodes; node p stands at time p - W/2
  int64_t capacity;
  int64_t frontier;  // nodes from here on have not been touched
  double* slope;     // (channels) of the piece before the current point
  double* fresh;     // (channels) of the piece behind it

  // Nodes up to `end` that all earlier points have passed hold the slope.
  void advance(int64_t end) {
    for (int c = 0; c < job->channels; ++c) {
      double* g = grid + c * capacity;
      for (int64_t p = frontier; p < end; ++p) g[p] = slope[c];
    }
    if (end > frontier) frontier = end;
  }

  // Adds weight[c] * table(values at v) to the nodes around v.
  void add(const double* table, double v, const double* weight) {
    int64_t p = (int64_t)v;
    p += (double)p < v;
    const int64_t in = p % LANES, from = p - in;
    advance(from + W + LANES);
    V k[W / LANES + 1];
    node_values<W>(table, job->degree, (double)p - v, in, k);
    for (int c = 0; c < job->channels; ++c) {
      V* g = (V*)(grid + c * capacity + from);
      const V w = splat(weight[c]);
      for (int b = 0; b <= W / LANES; ++b) g[b] += k[b] * w;
    }
  }

  void turn(double v) {  // the slope changes at v from `slope` to `fresh`
    const int C = job->channels;
    double* weight = fresh + C;
    for (int c = 0; c < C; ++c) weight[c] = fresh[c] - slope[c];
    add(job->step, v, weight);
    for (int c = 0; c < C; ++c) slope[c] = fresh[c];
  }

  void run(const double* t, const In* x, KeptPoints points) {
    const int C = job->channels;
    const double zero = t[0], per_time = job->nodes_per_time;
    for (int c = 0; c < C; ++c) slope[c] = 0;
    frontier = 0;
    double v = 0;
    int64_t a = 0;
    for (int64_t b; (b = points.next()) < points.n; a = b) {
      const double w = (t[b] - zero) * per_time, gap = w - v;
      if (gap > JUMP) {
        const double inverse = 1 / gap;
        for (int c = 0; c < C; ++c)
          fresh[c] = ((double)x[b * C + c] - (double)x[a * C + c]) * inverse;
        turn(v);
      } else {
        for (int c = 0; c < C; ++c) fresh[c] = 0;
        turn(v);
        for (int c = 0; c < C; ++c) fresh[c] = (double)x[b * C + c] - (double)x[a * C + c];
        add(job->bump, v + gap / 2, fresh);
      }
      v = w;
    }
    for (int c = 0; c < C; ++c) fresh[c] = 0;
    turn(v);
  }
};

// One channel's nodes onto its row of n_grid: node p goes to first - p, wrapped. Backwards, so that
// the FFT, which has exp(-iwt), gives exp(+iwt).
template <class Out>
static void fold(const RfSpread* job, double* g, int64_t nodes, Out* row) {
  const int64_t N = job->n_grid, first = job->first;
  if (job->weight)
    for (int64_t p = 0; p < nodes; ++p) g[p] *= job->weight[p];
  for (int64_t p = N, q = 0; p < nodes; ++p, q = q + 1 < N ? q + 1 : 0) g[q] += g[p];
  const int64_t used = nodes < N ? nodes : N, split = used < first + 1 ? used : first + 1;
  memset(row, 0, (size_t)N * sizeof(Out));
  for (int64_t p = 0; p < split; ++p) row[first - p] = (Out)g[p];
  for (int64_t p = split; p < used; ++p) row[first - p + N] = (Out)g[p];
}

template <class In, int W>
static void spread_series(const RfSpread* job, int64_t b, const uint32_t* bits, Arena arena) {
  const int C = job->channels;
  double* slopes = arena.take<double>((size_t)C * 3);
  const int64_t capacity = (job->n_nodes + 7) & ~(int64_t)7;
  double* grid = arena.take<double>((size_t)(C * capacity));
  Spreader<In, W> s = {job, grid, capacity, 0, slopes, slopes + C};
  s.run(job->times + job->time_starts[b], (const In*)job->values + job->starts[b] * C,
        KeptPoints{bits, 0, job->lengths[b]});
  const int64_t nodes = s.frontier < job->n_nodes ? s.frontier : job->n_nodes;
  for (int c = 0; c < C; ++c) {
    const int64_t row = (b * C + c) * job->n_grid;
    if (job->out_dtype == RF_F32)
      fold(job, grid + c * capacity, nodes, (float*)job->out + row);
    else
      fold(job, grid + c * capacity, nodes, (double*)job->out + row);
  }
}

static size_t spread_bytes(const RfSpread* job, int64_t longest) {
  const size_t words = (size_t)longest / 32 + 3;
  return LANES * (words * 4 + 64) + (size_t)job->channels * 24 +
         (size_t)job->channels * (size_t)(job->n_nodes + 8) * 8 + 1024;
}

static void spread(const RfSpread* job, int64_t first, int count, int64_t longest, void* scratch) {
  Arena arena = {(char*)scratch};
  uint32_t* bits[LANES] = {};  // kept points; null: all
  if (job->keep || job->keys)
    for (int l = 0; l < count; ++l) bits[l] = arena.take<uint32_t>((size_t)longest / 32 + 3);
  if (job->keep)
    for (int l = 0; l < count; ++l)
      pack_bits(job->keep + job->starts[first + l], job->lengths[first + l], bits[l]);
  else if (job->keys)
    thin(job->keys + first, job->lengths + first, job->drop, bits, count);
  for (int64_t b = first; b < first + count; ++b) {
    const uint32_t* kept = bits[b - first];
    if (job->value_dtype == RF_F32) {
      if (job->width == 8) spread_series<float, 8>(job, b, kept, arena);
      else spread_series<float, 16>(job, b, kept, arena);
    } else {
      if (job->width == 8) spread_series<double, 8>(job, b, kept, arena);
      else spread_series<double, 16>(job, b, kept, arena);
    }
  }
}

// ---- after the FFT --------------------------------------------------------------------------

// Row r of a spectrum known at whole frequencies, read between them:
//   out[r, j] = factor[j] * sum over q of weights[j, q] * spectrum[r, first[j] + q].
// At negative frequencies it is the conjugate of that at the positive ones.
template <class T>
static void between_row(const RfBetween* job, int64_t r) {
  const int W = job->width;
  const T* spectrum = (const T*)job->spectrum + r * job->n_spectrum * 2;
  T* out = (T*)job->out + r * job->n_frequencies * 2;
  for (int64_t j = 0; j < job->n_frequencies; ++j) {
    const double* w = job->weights + j * W * 2;  // each weight twice: for both parts
    const int64_t first = job->first[j];
    double re = 0, im = 0;
    if (first >= 0) {
      const T* from = spectrum + first * 2;
      V sum = {};
      for (int q = 0; q < 2 * W; q += LANES) sum += load_as_compute(from + q) * *(const VU*)(w + q);
      for (int l = 0; l < LANES; l += 2) re += sum[l], im += sum[l + 1];
    } else {
      for (int q = 0; q < W; ++q) {
        const int64_t k = first + q;
        const T* at = spectrum + (k < 0 ? -k : k) * 2;
        re += w[2 * q] * at[0];
        im += w[2 * q] * (k < 0 ? -at[1] : at[1]);
      }
    }
    const double c = job->factor[2 * j], s = job->factor[2 * j + 1];
    out[2 * j] = (T)(re * c - im * s);
    out[2 * j + 1] = (T)(re * s + im * c);
  }
}

static void between(const RfBetween* job, int64_t r) {
  if (job->dtype == RF_F32) between_row<float>(job, r);
  else between_row<double>(job, r);
}
