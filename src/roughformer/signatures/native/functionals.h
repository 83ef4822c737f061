// Random linear functionals of local signatures, pooled over time; see functionals.py, which defines
// them. Taps are small whole numbers and the moving averages are rounded to whole numbers, so every
// functional is a whole number below 2^24: exact in single precision, in any order of summation.
#pragma once

enum { COMPETING = 8 };  // functionals that share their channels and compete

static inline V select_of(M which, V yes, V no) { return which ? yes : no; }

static inline S sum_of(V x) {
  S sum = 0;
  for (int j = 0; j < LANES; ++j) sum += x[j];
  return sum;
}

static size_t functionals_bytes(const RfFunctionals* job) {
  const size_t N = (size_t)job->n_cells;
  const size_t most = N + (size_t)job->n_taps * N + 2 * LANES;
  return (N + 1) * sizeof(double) + most * sizeof(S) + COMPETING * (N + LANES) * sizeof(S) + 256;
}

static inline double clamped(const double* sums, int64_t at, int64_t n) {
  return sums[at < 0 ? 0 : at > n ? n : at];
}

// Moving averages over `width` cells of one mixture of the rows, as whole numbers.
static void moving_averages(const RfFunctionals* job, const double* rows, int64_t group,
                            int64_t width, int64_t low, int64_t count, double* sums, S* out) {
  const int64_t N = job->n_cells;
  memset(sums, 0, (size_t)(N + 1) * sizeof(double));
  for (int64_t m = job->mix_at[group]; m < job->mix_at[group + 1]; ++m) {
    const double* row = rows + job->mix_row[m] * N;
    const double weight = job->mix[m];
    for (int64_t i = 0; i < N; ++i) sums[i + 1] += weight * row[i];
  }
  for (int64_t i = 0; i < N; ++i) sums[i + 1] += sums[i];
  const double share = 1.0 / (double)width, most = job->most;
  const double big = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to whole numbers
  for (int64_t i = 0; i < count; ++i) {
    const double from = clamped(sums, low + i, N), to = clamped(sums, low + i + width, N);
    double x = (to - from) * share;
    x = x > most ? most : x < -most ? -most : x;
    out[i] = (S)((x + big) - big);
  }
}

static void functionals(const RfFunctionals* job, int64_t series, void* scratch) {
  const int64_t N = job->n_cells, T = job->n_taps, Q = job->n_thresholds;
  const int64_t groups = job->n_scales * job->n_groups, all = groups * COMPETING;
  double* sums = (double*)scratch;
  S* u = (S*)(((uintptr_t)(sums + N + 1) + 63) & ~(uintptr_t)63);
  S* v = u + ((N + T * N + 2 * LANES) / LANES) * LANES;
  const double* rows = job->cells + series * job->n_rows * N;
  float* ppv = job->ppv + series * all * Q;
  float* mpv = job->mpv + series * all * Q;
  float* mipv = job->mipv + series * all * Q;
  float* wins = job->wins + series * 2 * all;
  V ramp;
  for (int j = 0; j < LANES; ++j) ramp[j] = (S)j;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t width = job->widths[group / job->n_groups], span = T * width;
    const bool padded = job->padded[group / job->n_groups];
    const int64_t n = padded ? N : N - span + 1, low = padded ? -(span / 2) : 0;
    const int64_t stride = (n + LANES - 1) / LANES * LANES;
    const int64_t reach = n + (T - 1) * width;
    moving_averages(job, rows, group, width, low, reach, sums, u);
    for (int64_t i = reach; i < stride + (T - 1) * width; ++i) u[i] = 0;
    for (int k = 0; k < COMPETING; ++k) {
      const int64_t at = group * COMPETING + k;
      const float* taps = job->taps + at * T;
      S* vk = v + k * stride;
      for (int64_t i = 0; i < stride; i += LANES) {
        V sum{};
        for (int64_t j = 0; j < T; ++j) sum += *(const VU*)(u + i + j * width) * splat(taps[j]);
        *(VU*)(vk + i) = sum;
      }
      for (int64_t i = n; i < stride; ++i) vk[i] = -__builtin_inff();
      for (int64_t q = 0; q < Q; ++q) {
        const V bound = splat(job->thresholds[at * Q + q]);
        V count{}, above{}, when{}, place = ramp;
        for (int64_t i = 0; i < stride; i += LANES) {
          const V x = *(const VU*)(vk + i);
          const M positive = x > bound;
          count += select_of(positive, splat(1), V{});
          above += select_of(positive, x - bound, V{});
          when += select_of(positive, place, V{});
          place += splat(LANES);
        }
        const S total = sum_of(count);
        const S safe = total > 0 ? total : 1;
        ppv[at * Q + q] = total / (S)n;
        mpv[at * Q + q] = sum_of(above) / safe;
        mipv[at * Q + q] = total > 0 ? 2 * sum_of(when) / (safe * (S)n) - 1 : 0;
      }
    }
    V best[COMPETING] = {}, least[COMPETING] = {};
    for (int64_t i = 0; i < stride; i += LANES) {
      V high = *(const VU*)(v + i), small = high, first{}, last{};
      for (int k = 1; k < COMPETING; ++k) {
        const V x = *(const VU*)(v + k * stride + i);
        const M more = x > high, less = x < small;
        high = select_of(more, x, high);
        first = select_of(more, splat((S)k), first);
        small = select_of(less, x, small);
        last = select_of(less, splat((S)k), last);
      }
      const M real = ramp + splat((S)i) < splat((S)n);
      for (int k = 0; k < COMPETING; ++k) {
        best[k] += select_of((first == splat((S)k)) & real, high, V{});
        least[k] += select_of((last == splat((S)k)) & real, splat(1), V{});
      }
    }
    for (int k = 0; k < COMPETING; ++k) {
      wins[group * COMPETING + k] = sum_of(best[k]) / (S)n;
      wins[all + group * COMPETING + k] = sum_of(least[k]) / (S)n;
    }
  }
}
