// The kernel for one instruction set and one scalar type: a group of V series, window by window.
// Compiled once per (RF_NAME, RF_BYTES, RF_DOUBLE); no C++ library templates, so that nothing
// compiled for a newer processor can be merged into code that runs on an older one.
#include "abi.h"
#ifdef RF_X86
#include <immintrin.h>
#endif

namespace RF_NAME {
#include "lanes.h"
#include "path.h"
#include "tensor.h"

struct Special {
  int d, n, tracked;
  const int* word;  // (tracked) which word each of them is
  void (*run)(V* S_, const V* rows, long steps);
  void (*rebuild)(const V* S_, V* F);
  void (*chen)(V* H, const V* G, const V* L);
};
#include "generated.h"

// A signature that grows by rows of points, whichever code serves (d, n). `S_` is its state:
// tracked words for straight-line code, all words otherwise.
struct Engine {
  const Special* special;
  int d, n;
  int64_t words, state;
  Tree tree;     // generic code only
  V* increments;
  bool fresh;    // the state stands for the identity, whatever its memory holds

  void init(int d_, int n_) {
    d = d_, n = n_;
    special = special_for(d, n);
    fresh = false;
    words = word_count(d, n);
    state = special ? special->tracked : words;
  }
  static size_t vectors(int d, int n, int64_t steps) {
    return special_for(d, n) ? 0 : tree_vectors(steps, n) + (size_t)(steps * d) + 16;
  }
  void scratch(Arena& arena, int64_t steps) {
    if (special) return;
    tree.d = d, tree.n = n;
    tree.P = arena.take<V>((size_t)n * (n + 1) * steps);
    tree.heads = arena.take<V>((size_t)TILE_HEADS * steps);
    increments = arena.take<V>((size_t)(steps * d));
  }
  // S_ <- identity; large states are not cleared but written by the first run.
  void reset(V* S_) {
    if (special)
      for (int64_t i = 0; i < state; ++i) S_[i] = V{};
    else
      fresh = true;
  }
  void run(V* S_, const V* rows, int64_t steps) {
    if (special) return special->run(S_, rows, (long)steps);
    if (steps == 0) return;
    tree.fresh = fresh;
    fresh = false;
    for (int64_t i = 0; i < steps * d; ++i) increments[i] = rows[i + d] - rows[i];
    tree.x = increments;
    tree.steps = steps;
    extend(tree, S_);
  }
  void all_words(const V* S_, V* F) const {
    if (special)
      special->rebuild(S_, F);
    else if (fresh)
      memset(F, 0, (size_t)words * sizeof(V));
    else if (S_ != F)
      memcpy(F, S_, (size_t)words * sizeof(V));
  }
  // H <- G (x) L; H may be G.
  void multiply(V* H, const V* G, const V* L) const {
    if (special) return special->chen(H, G, L);
    if (H != G) memcpy(H, G, (size_t)words * sizeof(V));
    chen(H, L, d, n);
  }
};

static void logarithm(const RfLog* log, const V* F, V* out) {
  for (int64_t i = 0; i < log->n_out; ++i) {
    V sum = {};
    for (int64_t q = log->term_ptr[i]; q < log->term_ptr[i + 1]; ++q) {
      V term = splat((S)log->coef[q]);
      for (int64_t f = log->factor_ptr[q]; f < log->factor_ptr[q + 1]; ++f)
        term *= F[log->factor[f]];
      sum += term;
    }
    out[i] = sum;
  }
  for (int64_t q = 0; q < log->n_fix; ++q)
    out[log->fix_dst[q]] += splat((S)log->fix_coef[q]) * out[log->fix_src[q]];
}

// feature (n) of every lane -> n consecutive elements at out[l]. `roomy` lanes may be written a
// little past n: what follows is theirs and not yet final.
template <class Out>
static void store_features(const V* feature, int64_t n, Out* const* out, const bool* roomy, int count) {
  bool all = count == LANES;
  for (int l = 0; l < count; ++l) all &= out[l] != nullptr;
  int64_t e = 0;
  V r[LANES];
  if (all) {
    for (; e + LANES <= n; e += LANES) {
      const S* words[LANES];
      for (int j = 0; j < LANES; ++j) words[j] = (const S*)(feature + e + j);
      transpose_rows(words, r);
      for (int l = 0; l < LANES; ++l) store_from_compute(out[l] + e, r[l]);
    }
  }
  for (; e < n; e += LANES) {
    int64_t at = e;
    if (n - e < LANES && n >= LANES) at = n - LANES;  // overlap with the block before
    for (int j = 0; j < LANES; ++j) r[j] = at + j < n ? feature[at + j] : V{};
    transpose(r);
    const bool whole = n - at >= LANES;
    for (int l = 0; l < count; ++l) {
      if (!out[l]) continue;
      if (whole || roomy[l]) {
        store_from_compute(out[l] + at, r[l]);
      } else {
        for (int64_t j = 0; j < n - at; ++j) out[l][at + j] = (Out)r[l][j];
      }
    }
  }
}

// The reverse: n consecutive elements at in[l] (null: zeros) -> feature (n) of every lane.
template <class In>
static void load_features(const In* const* in, int64_t n, V* feature) {
  bool all = true;
  for (int l = 0; l < LANES; ++l) all &= in[l] != nullptr;
  int64_t e = 0;
  if (all) {
    for (; e + LANES <= n; e += LANES) {
      V r[LANES];
      for (int l = 0; l < LANES; ++l) r[l] = load_as_compute(in[l] + e);
      transpose(r);
      for (int j = 0; j < LANES; ++j) feature[e + j] = r[j];
    }
  }
  for (; e < n; ++e) {
    S* one = (S*)(feature + e);
    for (int l = 0; l < LANES; ++l) one[l] = in[l] ? (S)in[l][e] : S(0);
  }
}

// ---- a group --------------------------------------------------------------------------------

struct Group {
  Lane lanes[LANES];
  int count;
  int64_t windows;  // of the lane with the most
  bool masked;
  CutRow* cuts;  // windows + 1
};

static int64_t block_rows(const RfJob* job, int64_t max_rows, int backward) {
  if (backward) return max_rows + 1;
  const int64_t d = job->channels + (job->time_scale ? 1 : 0);
  int64_t rows = 16384 / (d * (int64_t)sizeof(V));
  if (rows < 16) rows = 16;
  if (rows > 64) rows = 64;
  return rows;
}

static size_t scratch_bytes(const RfJob* job, int64_t max_rows, int64_t max_windows, int backward) {
  const int64_t d = job->channels + (job->time_scale ? 1 : 0);
  const int n = job->depth;
  const int64_t rows = block_rows(job, max_rows, backward), words = word_count(d, n);
  size_t vectors = (size_t)((rows + 1) * d + 4 * d);
  vectors += Engine::vectors((int)d, n, rows);
  vectors += (size_t)(words * (backward ? 7 : 3)) + (job->log ? (size_t)job->log->n_out * 2 : 0);
  if (backward)
    vectors += 2 * tree_vectors(rows, n) + (size_t)(3 * (rows + 1) * d) + 64;
  size_t bytes = vectors * sizeof(V);
  bytes += (size_t)LANES * (size_t)((rows + 1) * job->channels + LANES) * 8;  // spill
  bytes += (size_t)(max_windows + 1) * sizeof(CutRow);
  bytes += (size_t)LANES * (size_t)(max_rows / 32 + 3) * 4;
  return bytes + 64 * 64;  // alignment
}

// Scratch starts with a flag: cuts of a uniform batch are placed once per thread.
static void open_group(const RfJob* job, const int64_t* members, int count, Arena& arena, Group& g) {
  int64_t* placed = arena.take<int64_t>(8);
  g.count = count;
  g.windows = 0;
  g.masked = job->keep || job->keys;
  const size_t item = job->value_dtype == RF_F32 ? 4 : 8;
  uint32_t* bits[LANES] = {};
  for (int l = 0; l < LANES; ++l) {
    Lane& lane = g.lanes[l];
    const int64_t b = members[l < count ? l : 0];
    lane.series = b;
    lane.values = (const char*)job->values + (size_t)(job->starts[b] * job->channels) * item;
    lane.times = job->times + job->time_starts[b];
    lane.length = job->lengths[b];
    lane.n_windows = job->n_windows[b];
    lane.cuts = job->cuts + job->cut_starts[b];
    lane.shift = job->cut_shift[b];
    lane.kept = nullptr;
    if (l < count && lane.n_windows > g.windows) g.windows = lane.n_windows;
  }
  if (g.masked)
    for (int l = 0; l < count; ++l)
      g.lanes[l].kept = bits[l] = arena.take<uint32_t>((size_t)(g.lanes[l].length / 32 + 2));
  if (job->keys) {
    uint32_t key[LANES];
    int64_t length[LANES];
    for (int l = 0; l < count; ++l) {
      key[l] = job->keys[g.lanes[l].series];
      length[l] = g.lanes[l].length;
    }
    thin(key, length, job->drop, bits, count);
  } else if (job->keep) {
    for (int l = 0; l < count; ++l)
      pack_bits(job->keep + job->starts[g.lanes[l].series], g.lanes[l].length, bits[l]);
  }
  for (int l = count; l < LANES; ++l) g.lanes[l].kept = g.lanes[0].kept;
  g.cuts = arena.take<CutRow>((size_t)g.windows + 1);
  if (!(job->uniform && *placed == 1)) place_cuts(g.lanes, job->uniform ? 1 : count, g.windows, g.cuts);
  *placed = 1;
}

static Rows take_rows(const RfJob* job, Arena& arena, int64_t capacity, int d) {
  Rows rows;
  rows.capacity = capacity;
  rows.buffer = arena.take<V>((size_t)((capacity + 1) * d));
  rows.base = arena.take<V>((size_t)d);
  rows.raw_last = arena.take<V>((size_t)d);
  rows.spill = arena.take<char>((size_t)LANES * (size_t)((capacity + 1) * job->channels + LANES) * 8);
  return rows;
}

// Loads and shapes the next block of a window: rows from ... from + n, n steps, into the buffer.
static int64_t next_block(const RfJob* job, const Group& g, const Window& w, int64_t k, int64_t from,
                          const Rows& rows, int d) {
  int64_t n = w.max_end - from;
  if (n > rows.capacity) n = rows.capacity;
  if (from == 0) {
    if (job->time_scale) rows.base[0] = V{};
    load_rows(job, g.lanes, w, 0, n + 1, rows, 0, d, true);
    start_row(job, g.lanes, w, g.cuts[k - 1], rows.buffer, d, rows, g.masked);
    for (int c = 0; c < d; ++c) rows.raw_last[c] = V{};
  } else {
    for (int c = 0; c < d; ++c) rows.buffer[c] = rows.buffer[rows.capacity * d + c];
    load_rows(job, g.lanes, w, from + 1, n, rows, 1, d, false);
  }
  shape_rows(g.lanes, w, from, n, rows, d, g.masked);
  return n;
}

// The line from the origin to where the window starts, as two rows; time does not jump.
static void base_rows(const RfJob* job, const Group& g, int64_t k, V* rows, int d) {
  const int time = job->time_scale ? 1 : 0;
  for (int c = 0; c < 2 * d; ++c) rows[c] = V{};
  for (int l = 0; l < LANES; ++l) {
    const Lane& lane = g.lanes[l];
    if (k > lane.n_windows) continue;
    const CutRow& p = g.cuts[k - 1];
    for (int c = time; c < d; ++c) {
      const S a = value_of(job, lane, p.a[l], c - time);
      rows[d + c][l] = a + p.alpha[l] * (value_of(job, lane, p.b[l], c - time) - a);
    }
  }
}

// The views of one call stand side by side in the token, from here on.
static int64_t first_at(const RfJob* job) {
  if (job->views == RF_GLOBAL) return job->global_at;
  if (job->views == RF_LOCAL) return job->local_at;
  return job->global_at < job->local_at ? job->global_at : job->local_at;
}

template <class Out>
static void forward_group(const RfJob* job, const int64_t* members, int count, void* scratch) {
  Arena arena = {(char*)scratch};
  Group g;
  open_group(job, members, count, arena, g);
  const int d = job->channels + (job->time_scale ? 1 : 0), n = job->depth;
  Engine engine;
  engine.init(d, n);
  Rows rows = take_rows(job, arena, block_rows(job, 0, 0), d);
  engine.scratch(arena, rows.capacity);
  const bool global = job->views & RF_GLOBAL, local = job->views & RF_LOCAL;
  const int64_t size = job->log ? job->log->n_out : engine.words;
  V* feature = arena.take<V>((size_t)(size * ((int)global + (int)local)));
  // Without a logarithm the words are accumulated where they will be stored from.
  const bool direct = !job->log;
  const int64_t origin = first_at(job);
  V* feature_global = feature + (job->global_at - origin);
  V* feature_local = feature + (job->local_at - origin);
  V* G = global && direct ? feature_global : arena.take<V>((size_t)engine.words);
  V* L = local && direct ? feature_local : arena.take<V>((size_t)engine.words);
  V* state = engine.special ? arena.take<V>((size_t)engine.state) : L;
  const int64_t features = size * ((int)global + (int)local);


  for (int64_t k = 1; k <= g.windows; ++k) {
    Window w;
    window_bounds(g.cuts[k - 1], g.cuts[k], w);
    engine.reset(state);
    if ((job->basepoint & RF_LOCAL) || (k == 1 && (job->basepoint & RF_GLOBAL))) {
      // A view with a basepoint is computed in a call of its own (see engine.py), so the
      // global view meets it once, before its first window.
      base_rows(job, g, k, rows.buffer, d);
      engine.run(state, rows.buffer, 1);
    }
    for (int64_t from = 0; from < w.max_end;) {
      const int64_t steps = next_block(job, g, w, k, from, rows, d);
      engine.run(state, rows.buffer, steps);
      from += steps;
    }
    engine.all_words(state, L);
    if (global) {
      if (k == 1)
        memcpy(G, L, (size_t)engine.words * sizeof(V));
      else
        engine.multiply(G, G, L);
    }
    if (job->log) {
      if (global) logarithm(job->log, G, feature_global);
      if (local) logarithm(job->log, L, feature_local);
    }
    Out* out[LANES];
    bool roomy[LANES];
    for (int l = 0; l < count; ++l) {
      const Lane& lane = g.lanes[l];
      out[l] = k > lane.n_windows ? nullptr
                                  : (Out*)job->out + job->out_starts[lane.series] +
                                        (k - 1) * job->token_stride + origin;
      // Only a sole writer may spill into its next tokens, which it is about to write.
      roomy[l] = job->token_stride == features && (lane.n_windows - k + 1) * features >= LANES;
    }
    store_features(feature, features, out, roomy, count);
  }
}

static void forward(const RfJob* job, const int64_t* members, int count, void* scratch) {
  if (job->out_dtype == RF_F32)
    forward_group<float>(job, members, count, scratch);
  else
    forward_group<double>(job, members, count, scratch);
}

#include "backward.h"
#include "clock.h"
#include "stream.h"
#if RF_DOUBLE
#include "spectrum.h"
#include "step.h"
#else
#include "functionals.h"
#endif

extern const RfKernel kernel;
const RfKernel kernel = {LANES,       scratch_bytes, forward,     backward, group_bytes,
                         stream_push, stream_read,   clock_bytes, clock,    stream_close,
                         thin_bytes,
#if RF_DOUBLE
                         nullptr,     nullptr,       spread_bytes, spread, between, step_bytes, step
#else
                         functionals_bytes, functionals
#endif
};
}  // namespace RF_NAME
