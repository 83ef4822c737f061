// Running signatures of many streams. A group of V streams holds, per lane: the last point, the
// local signature since the last window end, and the global signature at that window end (base).
// Straight-line code also advances the global signature itself, so that reading it needs no
// product; it is set anew from the base at each window end, so rounding does not pile up.
#pragma once

struct Running {
  Engine engine;
  V* last;    // (d) last point
  V* open;    // (1) 1 where a first point has been seen
  V* local;   // (state)
  V* global;  // (state) straight-line code only
  V* base;    // (words)
};

static Running running(void* group, int d, int n) {
  Running r;
  r.engine.init(d, n);
  r.open = (V*)group;
  r.last = r.open + 1;
  r.local = r.last + d;
  r.global = r.local + r.engine.state;
  r.base = r.global + (r.engine.special ? r.engine.state : 0);
  return r;
}

static size_t group_bytes(int d, int n) {
  Engine engine;
  engine.init(d, n);
  const int64_t states = engine.special ? 2 * engine.state : engine.state;
  return (size_t)(1 + d + states + engine.words) * sizeof(V);
}

// Room for n vectors: on the stack if they are few, else from the heap.
struct Room {
  V fixed[256];
  V* heap;
  V* at;
  explicit Room(int64_t n) : heap(nullptr), at(fixed) {
    if (n <= 256) return;
    heap = (V*)__builtin_malloc((size_t)n * sizeof(V) + 64);
    at = (V*)(((uintptr_t)heap + 63) & ~(uintptr_t)63);
  }
  ~Room() { __builtin_free(heap); }
};

// Moves every active stream to its next point. The first point only sets where it starts.
static void stream_push(void* group, int d, int n, const void* points, int64_t stride,
                        const uint8_t* active, int count) {
  Running r = running(group, d, n);
  const S* at[LANES] = {};
  for (int l = 0; l < count; ++l)
    if (!active || active[l]) at[l] = (const S*)points + l * stride;
  Room room(2 * d);
  V* rows = room.at;
  load_features(at, d, rows + d);
  M here = {};
  for (int l = 0; l < count; ++l) here[l] = at[l] ? -1 : 0;
  const M moves = here & (r.open[0] > splat(0));
  for (int c = 0; c < d; ++c) {
    const V point = rows[d + c];
    rows[c] = r.last[c];
    rows[d + c] = moves ? point : r.last[c];  // a stream that stands still adds nothing
    r.last[c] = here ? point : r.last[c];
  }
  r.open[0] = here ? splat(1) : r.open[0];
  if (r.engine.special) {
    r.engine.run(r.local, rows, 1);
    r.engine.run(r.global, rows, 1);
  } else {
    Room work((int64_t)Engine::vectors(d, n, 1));
    Arena arena = {(char*)work.at};
    r.engine.scratch(arena, 1);
    r.engine.run(r.local, rows, 1);
  }
}

static void stream_views(const Running& r, int views, V* local, V* global) {
  if ((views & RF_LOCAL) || !r.engine.special) r.engine.all_words(r.local, local);
  if (!(views & RF_GLOBAL)) return;
  if (r.engine.special)
    r.engine.all_words(r.global, global);
  else
    r.engine.multiply(global, r.base, local);
}

// (global, local) of the running window, in that order, as far as asked for.
static void stream_read(const void* group, int d, int n, int views, void* out, int64_t stride,
                        int count) {
  const Running r = running((void*)group, d, n);
  const int64_t words = r.engine.words;
  Room room(2 * words);
  stream_views(r, views, room.at + (views & RF_GLOBAL ? words : 0), room.at);
  S* at[LANES];
  bool roomy[LANES] = {};
  for (int l = 0; l < count; ++l) at[l] = (S*)out + l * stride;
  const int n_views = (views & RF_GLOBAL ? 1 : 0) + (views & RF_LOCAL ? 1 : 0);
  store_features(room.at, words * n_views, at, roomy, count);
}

// Ends the window of the chosen streams: global <- global (x) local, local <- identity.
static void stream_close(void* group, int d, int n, const uint8_t* which, int count) {
  Running r = running(group, d, n);
  const int64_t words = r.engine.words;
  Room room(2 * words);
  V *local = room.at, *joint = room.at + words;
  r.engine.all_words(r.local, local);
  r.engine.multiply(joint, r.base, local);
  M chosen = {};
  for (int l = 0; l < count; ++l) chosen[l] = !which || which[l] ? -1 : 0;
  for (int64_t i = 0; i < words; ++i) r.base[i] = chosen ? joint[i] : r.base[i];
  for (int64_t i = 0; i < r.engine.state; ++i) {
    r.local[i] = chosen ? V{} : r.local[i];
    if (r.engine.special) r.global[i] = chosen ? joint[r.engine.special->word[i]] : r.global[i];
  }
}
