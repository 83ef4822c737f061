// The gradient of the tokens with respect to the values: windows from the last to the first, each
// computed again and walked back. Included by kernel.cpp, whose group and engine it uses.
#pragma once

// Adds the gradient of one lane's rows to the values: D[s] is dL/d(shaped row s). Undoes
// shape_rows and start_row.
static void scatter(const RfJob* job, const Group& g, int l, const Window& w, int64_t k, const V* D,
                    int d) {
  const Lane& lane = g.lanes[l];
  const int time = job->time_scale ? 1 : 0, C = job->channels;
  S* out = (S*)job->grad_values + job->starts[lane.series] * C;
  const int64_t a = g.cuts[k - 1].a[l], b = g.cuts[k - 1].b[l], before_end = g.cuts[k].a[l];
  const S alpha = g.cuts[k - 1].alpha[l], at_end = (S)w.alpha_end[l];
  const int64_t end = (int64_t)w.end[l];
  if (end == 0) return;
  for (int c = 0; c < C; ++c) {
    S held = 0;  // gradient of rows that repeat an earlier one
    for (int64_t s = w.max_end; s >= end; --s) held += D[s * d + time + c][l];
    out[(a + end) * C + c] += at_end * held;
    out[before_end * C + c] += (1 - at_end) * held;
    held = 0;
    for (int64_t s = end - 1; s >= 1; --s) {
      held += D[s * d + time + c][l];
      const int64_t i = a + s;
      if (lane.kept && !((lane.kept[i >> 5] >> (i & 31)) & 1)) continue;
      out[i * C + c] += held;
      held = 0;
    }
    held += D[time + c][l];
    out[a * C + c] += (1 - alpha) * held;
    out[b * C + c] += alpha * held;
  }
}

// The line from the origin: a view with a basepoint depends on its first value itself.
static void scatter_base(const RfJob* job, const Group& g, int l, int64_t k, const V* dx, int d) {
  const int time = job->time_scale ? 1 : 0, C = job->channels;
  S* out = (S*)job->grad_values + job->starts[g.lanes[l].series] * C;
  const CutRow& p = g.cuts[k - 1];
  for (int c = 0; c < C; ++c) {
    out[p.a[l] * C + c] += (1 - p.alpha[l]) * dx[time + c][l];
    out[p.b[l] * C + c] += p.alpha[l] * dx[time + c][l];
  }
}

template <class Out>
static void backward_group(const RfJob* job, const int64_t* members, int count, void* scratch,
                           int64_t max_rows) {
  Arena arena = {(char*)scratch};
  Group g;
  open_group(job, members, count, arena, g);
  const int d = job->channels + (job->time_scale ? 1 : 0), n = job->depth;
  Engine engine;
  engine.init(d, n);
  Rows rows = take_rows(job, arena, max_rows, d);
  engine.scratch(arena, rows.capacity);
  const bool global = job->views & RF_GLOBAL, local = job->views & RF_LOCAL;
  const int64_t words = engine.words;
  V* G = arena.take<V>((size_t)words);       // global signature before the window
  V* L = arena.take<V>((size_t)words);       // of the window
  V* dG = arena.take<V>((size_t)words);      // dL/d(global after the window)
  V* dL = arena.take<V>((size_t)words);
  V* in = arena.take<V>((size_t)words);
  V* state = arena.take<V>((size_t)words);
  Adjoint A;
  A.tree.d = d, A.tree.n = n;
  A.tree.P = arena.take<V>((size_t)n * (n + 1) * (rows.capacity + 1));
  A.E = arena.take<V>((size_t)n * (n + 1) * (rows.capacity + 1));
  V* x = arena.take<V>((size_t)((rows.capacity + 1) * d));
  V* dx = arena.take<V>((size_t)((rows.capacity + 1) * d));
  A.tree.x = x;
  A.dx = dx;
  A.a = dL;
  for (int64_t i = 0; i < words; ++i) dG[i] = V{};

  for (int64_t k = g.windows; k >= 1; --k) {
    const Out *grad[LANES] = {}, *before[LANES] = {};
    for (int l = 0; l < count; ++l) {
      const Lane& lane = g.lanes[l];
      if (k > lane.n_windows) continue;
      const int64_t at = job->out_starts[lane.series] + (k - 1) * job->token_stride;
      grad[l] = (const Out*)job->grad_out + at;
      before[l] = k > 1 ? (const Out*)job->out + at - job->token_stride : nullptr;
    }
    for (int64_t i = 0; i < words; ++i) dL[i] = V{};
    if (local) {
      const Out* at[LANES];
      for (int l = 0; l < LANES; ++l) at[l] = grad[l] ? grad[l] + job->local_at : nullptr;
      load_features(at, words, dL);
    }
    Window w;
    window_bounds(g.cuts[k - 1], g.cuts[k], w);
    const bool base = (job->basepoint & RF_LOCAL) || (k == 1 && (job->basepoint & RF_GLOBAL));
    int64_t steps = 0;
    if (base) {
      base_rows(job, g, k, rows.buffer, d);
      for (int c = 0; c < d; ++c) x[c] = rows.buffer[d + c];
      steps = 1;
    }
    const int64_t first = steps;
    if (w.max_end > 0) {
      const int64_t m = next_block(job, g, w, k, 0, rows, d);
      for (int64_t i = 0; i < m * d; ++i) x[steps * d + i] = rows.buffer[i + d] - rows.buffer[i];
      steps += m;
    }
    A.tree.steps = steps;
    if (global) {
      const Out* at[LANES];
      for (int l = 0; l < LANES; ++l) at[l] = grad[l] ? grad[l] + job->global_at : nullptr;
      load_features(at, words, in);
      for (int64_t i = 0; i < words; ++i) dG[i] += in[i];
      if (k == 1) {
        for (int64_t i = 0; i < words; ++i) dL[i] += dG[i];
      } else {
        for (int l = 0; l < LANES; ++l) at[l] = before[l] ? before[l] + job->global_at : nullptr;
        load_features(at, words, G);
        engine.reset(state);
        if (w.max_end > 0) engine.run(state, rows.buffer, w.max_end);
        engine.all_words(state, L);
        unchen(dG, dL, G, L, d, n);
      }
    }
    if (steps == 0) continue;
    for (int64_t i = 0; i < steps * d; ++i) dx[i] = V{};
    unextend(A);
    if (base)
      for (int l = 0; l < count; ++l)
        if (k <= g.lanes[l].n_windows) scatter_base(job, g, l, k, dx, d);
    if (w.max_end == 0) continue;
    // increments -> rows, in place: row s gains x_s and loses x_{s+1}
    V* D = x;
    const V* gain = dx + first * d;
    for (int64_t s = 0; s <= w.max_end; ++s)
      for (int c = 0; c < d; ++c) {
        V value = s > 0 ? gain[(s - 1) * d + c] : V{};
        if (s < w.max_end) value -= gain[s * d + c];
        D[s * d + c] = value;
      }
    for (int l = 0; l < count; ++l)
      if (k <= g.lanes[l].n_windows) scatter(job, g, l, w, k, D, d);
  }
}

static void backward(const RfJob* job, const int64_t* members, int count, void* scratch) {
  // The rows of a whole window are held at once; the longest window bounds them.
  int64_t longest = 0;
  for (int l = 0; l < count; ++l)
    if (job->lengths[members[l]] > longest) longest = job->lengths[members[l]];
  if (job->out_dtype == RF_F32)
    backward_group<float>(job, members, count, scratch, longest);
  else
    backward_group<double>(job, members, count, scratch, longest);
}
