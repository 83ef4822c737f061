// Truncated tensors over V lanes for any dimension d and depth n: words by length, then
// lexicographically, the empty word left out.
#pragma once
#include "lanes.h"

enum { MAX_DEPTH = 12 };

static inline int64_t power(int64_t d, int k) {
  int64_t p = 1;
  while (k-- > 0) p *= d;
  return p;
}
static inline int64_t word_count(int64_t d, int n) {
  int64_t total = 0, p = 1;
  for (int k = 1; k <= n; ++k) total += (p *= d);
  return total;
}
static inline int64_t level_at(int64_t d, int k) { return word_count(d, k - 1); }

// G <- G (x) L. Longest words first, because they read the shorter ones; each word is written once:
// for a prefix p of length k-1, G_k[p v] += L_k[p v] + sum over m of G_m[p_1..p_m] L_{k-m}[p_{m+1}.. v].
template <class T>
static void chen(T* G, const T* L, int64_t d, int n) {
  for (int k = n; k >= 1; --k) {
    T* Gk = G + level_at(d, k);
    const T* Lk = L + level_at(d, k);
    const int64_t prefixes = power(d, k - 1);
    for (int64_t p = 0; p < prefixes; ++p) {
      T* out = Gk + p * d;
      const T* same = Lk + p * d;
      if (k == 3) {  // the common case, with its two products in registers
        const T g1 = G[p / d], g2 = G[d + p];
        const T* tail = L + d + p % d * d;
        for (int64_t v = 0; v < d; ++v) out[v] = out[v] + same[v] + g1 * tail[v] + g2 * L[v];
        continue;
      }
      for (int64_t v = 0; v < d; ++v) out[v] += same[v];
      int64_t size = prefixes / d;  // d^(k-1-m)
      for (int m = 1; m < k; ++m, size /= d) {
        const T g = G[level_at(d, m) + p / size];
        const T* tail = L + level_at(d, k - m) + p % size * d;
        for (int64_t v = 0; v < d; ++v) out[v] += g * tail[v];
      }
    }
  }
}

// Reverse mode of H = G (x) L: a = dL/dH. Adds to dL; turns a into dL/dG in place.
static void unchen(V* a, V* dL, const V* G, const V* L, int64_t d, int n) {
  for (int64_t i = 0, all = word_count(d, n); i < all; ++i) dL[i] += a[i];
  // Shorter words first: level m of the result reads only longer, still unchanged levels of a.
  for (int m = 1; m < n; ++m) {
    V* am = a + level_at(d, m);
    const V* Gm = G + level_at(d, m);
    const int64_t heads = power(d, m);
    for (int r = 1; r + m <= n; ++r) {
      const V* Lr = L + level_at(d, r);
      V* dLr = dL + level_at(d, r);
      const int64_t tails = power(d, r);
      const V* ak = a + level_at(d, m + r);
      for (int64_t u = 0; u < heads; ++u) {
        const V g = Gm[u];
        const V* out = ak + u * tails;
        V sum = {};
        for (int64_t v = 0; v < tails; ++v) {
          sum += out[v] * Lr[v];
          dLr[v] += out[v] * g;
        }
        am[u] += sum;
      }
    }
  }
}

// ---- signature of a block of increments ----------------------------------------------------
//
// For a word p of length m and a target length k > m, Horner's partial sums over the steps t are
//   P^k_m(p)_t = P^k_{m-1}(p')_t * x_{t, p_m} / (k-m+1) + S_t(p),     P^k_0 = 1,
// and S_{t+1}(p) = S_t(p) + P^m_{m-1}(p')_t * x_{t, p_m}. Words are visited depth first, all steps
// of a block at once, so only one branch of the tree is alive; the last level, which is nearly all
// of the work, is a matrix product over the steps that stays in registers.

#if RF_BYTES == 64 || defined(__aarch64__)
enum { TILE_HEADS = 4, TILE_TAILS = 5 };
#else
enum { TILE_HEADS = 2, TILE_TAILS = 5 };
#endif

struct Tree {
  const V* x;  // (steps, d) increments
  V* P;        // (n, n + 1, steps): P[m][k]
  V* heads;    // (steps, TILE_HEADS)
  int64_t steps, d;
  int n;
  bool fresh;  // what is extended is the identity, and its memory has not been set
  V* partial(int m, int k) const { return P + ((int64_t)m * (n + 1) + k) * steps; }
};

static size_t tree_vectors(int64_t steps, int n) {
  return (size_t)((int64_t)n * (n + 1) * steps + TILE_HEADS * steps) + 8;
}

template <int H, int T>
static inline void tile(const Tree& tree, V* out, int64_t j) {
  V acc[H][T];
  for (int h = 0; h < H; ++h)
    for (int q = 0; q < T; ++q) acc[h][q] = tree.fresh ? V{} : out[h * tree.d + j + q];
  const V* x = tree.x + j;
  const V* a = tree.heads;
  for (int64_t t = 0; t < tree.steps; ++t, x += tree.d, a += TILE_HEADS)
    for (int h = 0; h < H; ++h)
      for (int q = 0; q < T; ++q) acc[h][q] += a[h] * x[q];
  for (int h = 0; h < H; ++h)
    for (int q = 0; q < T; ++q) out[h * tree.d + j + q] = acc[h][q];
}

template <int H>
static void last_level(const Tree& tree, V* out) {
  int64_t j = 0;
  for (; j + TILE_TAILS <= tree.d; j += TILE_TAILS) tile<H, TILE_TAILS>(tree, out, j);
  for (; j < tree.d; ++j) tile<H, 1>(tree, out, j);
}

// Visits word `word` (index within level m, last letter j); parent partials are at level m-1.
// Fills the partials of level m for k = m+1 ... n and advances F[word] over the steps.
static inline void visit(const Tree& tree, V* F, int m, int64_t word, int64_t j, V* head, int stride) {
  V s = tree.fresh ? V{} : F[level_at(tree.d, m) + word];
  const int n = tree.n;
  for (int64_t t = 0; t < tree.steps; ++t) {
    const V x = tree.x[t * tree.d + j];
    for (int k = m + 1; k <= n; ++k) {
      const V fraction = x * splat(S(1) / S(k - m + 1));
      const V value = m == 1 ? fraction + s : tree.partial(m - 1, k)[t] * fraction + s;
      if (head && k == n)
        head[t * stride] = value;
      else
        tree.partial(m, k)[t] = value;
    }
    s += m == 1 ? x : tree.partial(m - 1, m)[t] * x;
  }
  F[level_at(tree.d, m) + word] = s;
}

static void descend(const Tree& tree, V* F, int m, int64_t word) {
  // The children of `word` (level m) are level m+1; those of level n are done by tiles.
  const int64_t d = tree.d;
  if (m + 1 == tree.n - 1) {
    V* top = F + level_at(d, tree.n);
    int64_t j = 0;
    for (; j + TILE_HEADS <= d; j += TILE_HEADS) {
      for (int h = 0; h < TILE_HEADS; ++h)
        visit(tree, F, m + 1, word * d + j + h, j + h, tree.heads + h, TILE_HEADS);
      last_level<TILE_HEADS>(tree, top + (word * d + j) * d);
    }
    for (; j < d; ++j) {
      visit(tree, F, m + 1, word * d + j, j, tree.heads, TILE_HEADS);
      last_level<1>(tree, top + (word * d + j) * d);
    }
    return;
  }
  for (int64_t j = 0; j < d; ++j) {
    visit(tree, F, m + 1, word * d + j, j, nullptr, 0);
    descend(tree, F, m + 1, word * d + j);
  }
}

// F <- F (x) exp(x_1) (x) ... (x) exp(x_steps)
static void extend(const Tree& tree, V* F) {
  if (tree.n == 1) {
    if (tree.fresh) memset(F, 0, (size_t)tree.d * sizeof(V));
    for (int64_t t = 0; t < tree.steps; ++t)
      for (int64_t j = 0; j < tree.d; ++j) F[j] += tree.x[t * tree.d + j];
    return;
  }
  descend(tree, F, 0, 0);
}

// ---- reverse mode --------------------------------------------------------------------------
// Given a = dL/dF for F = exp(x_1) (x) ... (x) exp(x_steps), adds dL/dx. Partials are computed
// again on the way down (a signature starts from the identity, so nothing has to be undone);
// E[m][k]_t is the adjoint of P^k_m.

struct Adjoint {
  Tree tree;
  const V* a;
  V* E;   // (n, n + 1, steps)
  V* dx;  // (steps, d)
  V* adjoint(int m, int k) const { return E + ((int64_t)m * (tree.n + 1) + k) * tree.steps; }
};

static void unvisit(const Adjoint& A, int m, int64_t word, int64_t j) {
  const Tree& tree = A.tree;
  const int n = tree.n;
  const int64_t d = tree.d, T = tree.steps;
  V s = {};
  for (int64_t t = 0; t < T; ++t) {
    const V x = tree.x[t * d + j];
    for (int k = m + 1; k <= n; ++k) {
      const V fraction = x * splat(S(1) / S(k - m + 1));
      tree.partial(m, k)[t] = m == 1 ? fraction + s : tree.partial(m - 1, k)[t] * fraction + s;
    }
    s += m == 1 ? x : tree.partial(m - 1, m)[t] * x;
  }
  for (int k = m + 1; k <= n; ++k) {
    V* e = A.adjoint(m, k);
    for (int64_t t = 0; t < T; ++t) e[t] = V{};
  }
  if (m == n - 1) {
    const V* top = A.a + level_at(d, n) + word * d;
    const V* p = tree.partial(m, n);
    V* e = A.adjoint(m, n);
    for (int64_t t = 0; t < T; ++t) {
      const V* x = tree.x + t * d;
      V* dx = A.dx + t * d;
      const V here = p[t];
      V sum = {};
      for (int64_t q = 0; q < d; ++q) {
        sum += top[q] * x[q];
        dx[q] += top[q] * here;
      }
      e[t] = sum;
    }
  } else {
    for (int64_t q = 0; q < d; ++q) unvisit(A, m + 1, word * d + q, q);
  }
  V g = A.a[level_at(d, m) + word];
  for (int64_t t = T - 1; t >= 0; --t) {
    const V x = tree.x[t * d + j];
    V gain = m == 1 ? g : g * tree.partial(m - 1, m)[t];
    if (m > 1) A.adjoint(m - 1, m)[t] += g * x;
    for (int k = m + 1; k <= n; ++k) {
      const V e = A.adjoint(m, k)[t];
      const V part = e * splat(S(1) / S(k - m + 1));
      gain += m == 1 ? part : part * tree.partial(m - 1, k)[t];
      if (m > 1) A.adjoint(m - 1, k)[t] += part * x;
      g += e;
    }
    A.dx[t * d + j] += gain;
  }
}

static void unextend(const Adjoint& A) {
  const int64_t d = A.tree.d;
  if (A.tree.n == 1) {
    for (int64_t t = 0; t < A.tree.steps; ++t)
      for (int64_t j = 0; j < d; ++j) A.dx[t * d + j] += A.a[j];
    return;
  }
  for (int64_t j = 0; j < d; ++j) unvisit(A, 1, j, j);
}
