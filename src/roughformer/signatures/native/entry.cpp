// What Python calls: picks the kernel of this processor, shares the groups out to threads.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "abi.h"

#define RF_DECLARE(name) \
  namespace name {       \
  extern const RfKernel kernel; \
  }
RF_DECLARE(base_f32)
RF_DECLARE(base_f64)
#ifdef RF_X86
RF_DECLARE(avx2_f32)
RF_DECLARE(avx2_f64)
RF_DECLARE(avx512_f32)
RF_DECLARE(avx512_f64)
#endif

namespace {

struct Isa {
  const char* name;
  const RfKernel* f32;
  const RfKernel* f64;
};

const Isa kIsas[] = {
    {"baseline", &base_f32::kernel, &base_f64::kernel},
#ifdef RF_X86
    {"avx2", &avx2_f32::kernel, &avx2_f64::kernel},
    {"avx512", &avx512_f32::kernel, &avx512_f64::kernel},
#endif
};

int supported() {
#ifdef RF_X86
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 1;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512bw"))
    return 2;
  return 3;
#else
  return 1;
#endif
}

std::atomic<int> g_isa{-1};

const Isa& isa() {
  int i = g_isa.load();
  if (i < 0) {
    i = supported() - 1;
    if (const char* wish = std::getenv("ROUGHFORMER_ISA"))
      for (int j = 0; j < supported(); ++j)
        if (!std::strcmp(kIsas[j].name, wish)) i = j;
    g_isa.store(i);
  }
  return kIsas[i];
}

const RfKernel& kernel_for(int dtype) { return dtype == RF_F32 ? *isa().f32 : *isa().f64; }

struct Scratch {
  char* raw;
  char* at;
  explicit Scratch(size_t bytes) : raw((char*)std::malloc(bytes + 64)) {
    if (!raw) throw std::bad_alloc();
    at = (char*)(((uintptr_t)raw + 63) & ~(uintptr_t)63);
    std::memset(at, 0, 64);
  }
  ~Scratch() { std::free(raw); }
  Scratch(const Scratch&) = delete;
};

template <class Work>
void in_threads(int threads, int64_t tasks, Work work) {
  threads = (int)std::max<int64_t>(1, std::min<int64_t>(threads, tasks));
  if (threads == 1) {
    work();
    return;
  }
  std::vector<std::thread> others;
  try {
    for (int i = 1; i < threads; ++i) others.emplace_back(work);
  } catch (...) {
    // The system gives no more threads: those there are take all of the work.
  }
  work();
  for (auto& t : others) t.join();
}

// work(group, scratch) for every group, in threads; 1 if memory was lacking.
template <class Work>
int in_groups(int threads, int64_t groups, size_t bytes, Work work) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  in_threads(threads, groups, [&] {
    try {
      Scratch scratch(bytes + 64);
      for (int64_t g; (g = next.fetch_add(1)) < groups;) work(g, scratch.at);
    } catch (...) {
      failed = true;
    }
  });
  return failed ? 1 : 0;
}

int run_groups(const RfJob* job, bool backward) {
  const RfKernel& kernel = kernel_for(job->compute_dtype);
  const int64_t B = job->n_series;
  if (B == 0) return 0;
  std::vector<int64_t> order(B);
  std::iota(order.begin(), order.end(), 0);
  int64_t longest = 0, shortest = INT64_MAX, windows = 0;
  for (int64_t b = 0; b < B; ++b) {
    longest = std::max(longest, job->lengths[b]);
    shortest = std::min(shortest, job->lengths[b]);
    windows = std::max(windows, job->n_windows[b]);
  }
  // Lanes of a group advance together: series of like length belong together, longest first so
  // that the last groups handed out are the short ones.
  if (longest != shortest)
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return job->lengths[a] > job->lengths[b]; });
  const int lanes = kernel.lanes;
  const int64_t groups = (B + lanes - 1) / lanes;
  const size_t bytes = kernel.scratch_bytes(job, longest, windows, backward);
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  in_threads(job->threads, groups, [&] {
    try {
      Scratch scratch(bytes);
      for (int64_t g; (g = next.fetch_add(1)) < groups;) {
        const int count = (int)std::min<int64_t>(lanes, B - g * lanes);
        (backward ? kernel.backward : kernel.forward)(job, order.data() + g * lanes, count,
                                                      scratch.at);
      }
    } catch (...) {
      failed = true;
    }
  });
  return failed ? 1 : 0;
}

// Fills the gap between the observations at rows p and q of one channel; -1 or n: there is none.
template <class T>
void fill_gap(const T* in, T* out, const double* t, int64_t stride, int64_t n, int64_t p, int64_t q) {
  const bool left = p >= 0, right = q < n;
  const double low = left ? in[p * stride] : right ? in[q * stride] : T(0);
  const double high = right ? in[q * stride] : low;
  for (int64_t i = p + 1; i < q; ++i) {
    const double w = left && right ? (t[i] - t[p]) / (t[q] - t[p]) : 0.0;
    const double mixed = low * (1 - w) + high * w;  // cannot overflow, unlike low + w (high - low)
    out[i * stride] = (T)std::clamp(mixed, std::min(low, high), std::max(low, high));
  }
}

template <class T>
void fill_series(const RfFill* job, int64_t b) {
  const int64_t n = job->lengths[b], C = job->channels;
  const double* t = job->times + job->time_starts[b];
  const uint8_t* keep = job->keep ? job->keep + job->starts[b] : nullptr;
  for (int64_t c = 0; c < C; ++c) {
    const T* in = (const T*)job->values + job->starts[b] * C + c;
    T* out = (T*)job->out + job->starts[b] * C + c;
    int64_t before = -1;
    for (int64_t i = 0; i < n; ++i) {
      const T x = in[i * C];
      if (!(x == x) || (keep && !keep[i])) continue;
      out[i * C] = x;
      if (before + 1 < i) fill_gap(in, out, t, C, n, before, i);
      before = i;
    }
    fill_gap(in, out, t, C, n, before, n);
    job->never[b * C + c] = before < 0;
  }
}

// Values and integrals of one channel's path at the edges of its cells: linear between observations,
// constant before and after, 0 if there are none. `scratch`: times and values of observations.
template <class T>
void cells_of_channel(const RfCells* job, int64_t b, int64_t c, double* scratch) {
  const int64_t n = job->lengths[b], N = job->n_cells, C = job->channels;
  const double* t = job->times + job->time_starts[b];
  const T* in = (const T*)job->values + job->starts[b] * C + c;
  double *when = scratch, *x = scratch + n;
  int64_t seen = 0;
  for (int64_t i = 0; i < n; ++i)
    if (in[i * C] == in[i * C]) {
      when[seen] = t[i] - t[0];
      x[seen++] = in[i * C];
    }
  double* levels = job->out + (b * 2 * C + c) * N;
  double* increments = levels + C * N;
  if (!seen) {
    std::fill(levels, levels + N, 0.0);
    std::fill(increments, increments + N, 0.0);
    return;
  }
  const double span = std::max(t[n - 1] - t[0], job->least_span), cell = span / (double)N;
  int64_t i = 0;  // the first observation after `from`
  double from = 0, at = x[0];
  while (i < seen && when[i] <= from) at = x[i++];
  for (int64_t k = 0; k < N; ++k) {
    const double to = k + 1 == N ? span : (double)(k + 1) * cell, begin = at;
    double area = 0, left = from;
    for (; i < seen && when[i] <= to; ++i) {
      area += (when[i] - left) * (at + x[i]) / 2;
      left = when[i];
      at = x[i];
    }
    if (to > left) {
      double end = at;
      if (i > 0 && i < seen) end += (x[i] - at) * ((to - left) / (when[i] - left));
      area += (to - left) * (at + end) / 2;
      at = end;
    }
    levels[k] = to > from ? area / (to - from) : at;
    increments[k] = at - begin;
    from = to;
  }
}

template <class Group>
void over_stream_groups(const RfStream* s, Group group) {
  const RfKernel& kernel = kernel_for(s->dtype);
  const size_t bytes = kernel.stream_group_bytes(s->dim, s->depth);
  for (int64_t first = 0, g = 0; first < s->n_streams; first += kernel.lanes, ++g)
    group(kernel, (char*)s->state + g * bytes, first,
          (int)std::min<int64_t>(kernel.lanes, s->n_streams - first));
}

template <class T>
int64_t first_not_finite(const T* points, const uint8_t* active, const RfStream* s) {
  // x - x is 0 for every finite x and NaN for all others; one pass without branches in most cases.
  int wrong = 0;
  for (int64_t i = 0; i < s->n_streams * s->dim; ++i) wrong |= !(points[i] - points[i] == 0);
  if (!wrong) return -1;
  for (int64_t b = 0; b < s->n_streams; ++b)
    for (int c = 0; c < s->dim; ++c)
      if ((!active || active[b]) && !(points[b * s->dim + c] - points[b * s->dim + c] == 0)) return b;
  return -1;
}

// A few hundred numbers at a time: mostly they are all the same, which is soon seen.
template <class T>
int64_t runs_of(const T* numbers, int64_t n, int64_t* starts) {
  constexpr int64_t kNumbers = 256;
  int64_t found = 0;
  if (n > 0) starts[found++] = 0;
  for (int64_t a = 1; a < n; a += kNumbers) {
    const int64_t b = std::min(a + kNumbers, n);
    T other = 0;
    for (int64_t i = a; i < b; ++i) other |= numbers[i] ^ numbers[i - 1];
    if (other)
      for (int64_t i = a; i < b; ++i)
        if (numbers[i] != numbers[i - 1]) starts[found++] = i;
  }
  return found;
}

}  // namespace

extern "C" {

int rf_abi_version() { return 12; }
const char* rf_isa() { return isa().name; }
int rf_isa_count() { return supported(); }
const char* rf_isa_name(int i) { return i >= 0 && i < supported() ? kIsas[i].name : ""; }
// Only for tests and benchmarks; returns 0 if this processor cannot run it.
int rf_set_isa(const char* name) {
  for (int j = 0; j < supported(); ++j)
    if (!std::strcmp(kIsas[j].name, name)) {
      g_isa.store(j);
      return 1;
    }
  return 0;
}

int rf_forward(const RfJob* job) try { return run_groups(job, false); } catch (...) { return 1; }
int rf_backward(const RfJob* job) try { return run_groups(job, true); } catch (...) { return 1; }

int rf_clock(const RfClock* job) try {
  const RfKernel& kernel = kernel_for(job->compute_dtype);
  const int64_t chunk = 16, windows = job->n_series * job->n_windows;
  const int64_t points = std::accumulate(job->lengths, job->lengths + job->n_series, (int64_t)0);
  // Starting a thread takes as long as some ten thousand waves.
  const int64_t waves = points * job->n_frequencies, fewest = 1 << 15;
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  in_threads(job->threads, std::min((windows + chunk - 1) / chunk, waves / fewest), [&] {
    try {
      Scratch scratch(kernel.clock_bytes(job));
      for (int64_t first; (first = next.fetch_add(chunk)) < windows;)
        for (int64_t i = first; i < std::min(first + chunk, windows); ++i)
          kernel.clock(job, i / job->n_windows, i % job->n_windows, scratch.at);
    } catch (...) {
      failed = true;
    }
  });
  return failed ? 1 : 0;
} catch (...) {
  return 1;
}

int rf_thin(const RfThin* job) try {
  const RfKernel& kernel = kernel_for(RF_F32);
  const int64_t B = job->n_series, groups = (B + kernel.lanes - 1) / kernel.lanes;
  if (B == 0) return 0;
  const int64_t words = *std::max_element(job->lengths, job->lengths + B) / 32 + 3;
  return in_groups(job->threads, groups, (size_t)(words * 4 * kernel.lanes), [&](int64_t g, char* s) {
    const int count = (int)std::min<int64_t>(kernel.lanes, B - g * kernel.lanes);
    kernel.thin_bytes(job, g * kernel.lanes, count, (uint32_t*)s, words);
  });
} catch (...) {
  return 1;
}

int rf_spread(const RfSpread* job) try {
  const RfKernel& kernel = kernel_for(RF_F64);
  const int64_t B = job->n_series, groups = (B + kernel.lanes - 1) / kernel.lanes;
  if (B == 0) return 0;
  const int64_t longest = *std::max_element(job->lengths, job->lengths + B);
  return in_groups(job->threads, groups, kernel.spread_bytes(job, longest), [&](int64_t g, char* s) {
    const int count = (int)std::min<int64_t>(kernel.lanes, B - g * kernel.lanes);
    kernel.spread(job, g * kernel.lanes, count, longest, s);
  });
} catch (...) {
  return 1;
}

int rf_between(const RfBetween* job) try {
  const RfKernel& kernel = kernel_for(RF_F64);
  return in_groups(job->threads, job->n_rows, 0, [&](int64_t r, char*) { kernel.between(job, r); });
} catch (...) {
  return 1;
}

// How many windows ended; those that are left are for another call. -1 if memory was lacking, then
// nothing has changed.
int64_t rf_step(RfStep* job) try {
  const RfKernel& kernel = kernel_for(RF_F64);
  Scratch scratch(kernel.step_bytes(job));
  return kernel.step(job, scratch.at);
} catch (...) {
  return -1;
}

void rf_fill(const RfFill* job) {
  const int64_t chunk = 16;
  std::atomic<int64_t> next{0};
  in_threads(job->threads, (job->n_series + chunk - 1) / chunk, [&] {
    for (int64_t first; (first = next.fetch_add(chunk)) < job->n_series;)
      for (int64_t b = first; b < std::min(first + chunk, job->n_series); ++b)
        job->dtype == RF_F32 ? fill_series<float>(job, b) : fill_series<double>(job, b);
  });
}

int rf_cells(const RfCells* job) try {
  if (job->n_series == 0) return 0;
  const int64_t longest = *std::max_element(job->lengths, job->lengths + job->n_series);
  const size_t bytes = (size_t)longest * 2 * sizeof(double);
  return in_groups(job->threads, job->n_series, bytes, [&](int64_t b, char* s) {
    for (int64_t c = 0; c < job->channels; ++c)
      job->value_dtype == RF_F32 ? cells_of_channel<float>(job, b, c, (double*)s)
                                 : cells_of_channel<double>(job, b, c, (double*)s);
  });
} catch (...) {
  return 1;
}

int rf_functionals(const RfFunctionals* job) try {
  const RfKernel& kernel = kernel_for(RF_F32);
  return in_groups(job->threads, job->n_series, kernel.functionals_bytes(job),
                   [&](int64_t b, char* s) { kernel.functionals(job, b, s); });
} catch (...) {
  return 1;
}

// Rows at which another number begins than in the row before, the first row included; how many.
int64_t rf_runs(const void* numbers, int64_t n, int32_t bytes, int64_t* starts) {
  return bytes == 4 ? runs_of((const uint32_t*)numbers, n, starts)
                    : runs_of((const uint64_t*)numbers, n, starts);
}

int64_t rf_stream_bytes(const RfStream* s) {
  const RfKernel& kernel = kernel_for(s->dtype);
  const int64_t groups = (s->n_streams + kernel.lanes - 1) / kernel.lanes;
  return groups * (int64_t)kernel.stream_group_bytes(s->dim, s->depth);
}
// Returns -1, or the first active stream whose point is not finite; then nothing has been pushed.
int64_t rf_stream_push(const RfStream* s, const void* points, const uint8_t* active) {
  const int64_t bad = s->dtype == RF_F32 ? first_not_finite((const float*)points, active, s)
                                         : first_not_finite((const double*)points, active, s);
  if (bad >= 0) return bad;
  const size_t item = s->dtype == RF_F32 ? 4 : 8;
  over_stream_groups(s, [&](const RfKernel& k, void* group, int64_t first, int count) {
    k.stream_push(group, s->dim, s->depth, (const char*)points + (size_t)first * s->dim * item,
                  s->dim, active ? active + first : nullptr, count);
  });
  return -1;
}
void rf_stream_read(const RfStream* s, int views, void* out, int64_t stride) {
  const size_t item = s->dtype == RF_F32 ? 4 : 8;
  over_stream_groups(s, [&](const RfKernel& k, void* group, int64_t first, int count) {
    k.stream_read(group, s->dim, s->depth, views, (char*)out + (size_t)(first * stride) * item,
                  stride, count);
  });
}
void rf_stream_close(const RfStream* s, const uint8_t* which) {
  over_stream_groups(s, [&](const RfKernel& k, void* group, int64_t first, int count) {
    k.stream_close(group, s->dim, s->depth, which ? which + first : nullptr, count);
  });
}
}
