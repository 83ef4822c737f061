// Vectors of lanes. A lane is one series: all arithmetic is written once and runs on V lanes.
// Only the portable vector extensions of GCC and Clang; RF_BYTES is the width of a register.
// Everything is static: the same names are compiled once for each instruction set.
#pragma once
#include <stdint.h>
#include <string.h>

typedef RF_SCALAR S;
#if RF_DOUBLE
typedef int64_t I;
typedef float Other;
#else
typedef int32_t I;
typedef double Other;
#endif
enum { LANES = RF_BYTES / sizeof(S) };
typedef S V __attribute__((vector_size(RF_BYTES)));
typedef I M __attribute__((vector_size(RF_BYTES)));
typedef S VU __attribute__((vector_size(RF_BYTES), aligned(1), may_alias));
typedef uint32_t U32 __attribute__((vector_size(LANES * 4)));
typedef int32_t I32 __attribute__((vector_size(LANES * 4)));
typedef float VF __attribute__((vector_size(LANES * 4)));
typedef double VD __attribute__((vector_size(LANES * 8)));
typedef float VFU __attribute__((vector_size(LANES * 4), aligned(1), may_alias));
typedef double VDU __attribute__((vector_size(LANES * 8), aligned(1), may_alias));

static inline V splat(S x) { return x - V{}; }
static inline M splat_i(I x) { return x - M{}; }
static inline V load_as_compute(const float* p) {
  return __builtin_convertvector(*(const VFU*)p, V);
}
static inline V load_as_compute(const double* p) {
  return __builtin_convertvector(*(const VDU*)p, V);
}
static inline void store_from_compute(float* p, V x) { *(VFU*)p = __builtin_convertvector(x, VF); }
static inline void store_from_compute(double* p, V x) { *(VDU*)p = __builtin_convertvector(x, VD); }

// lo[j] = j & h ? b[j-h] : a[j];  hi[j] = j & h ? b[j] : a[j+h]
template <int H>
static inline void swap_blocks(V& a, V& b) {
  M lo, hi;
  for (int j = 0; j < LANES; ++j) {
    lo[j] = (j & H) ? LANES + j - H : j;
    hi[j] = (j & H) ? LANES + j : j + H;
  }
  const V x = __builtin_shuffle(a, b, lo), y = __builtin_shuffle(a, b, hi);
  a = x;
  b = y;
}

#if !RF_DOUBLE
// Transposes the 4 x 4 blocks of four vectors: single instructions on every x86.
static inline void transpose_blocks(V* r) {
  M lo, hi, lo2, hi2;
  for (int j = 0; j < LANES; ++j) {
    const int block = j & ~3, in = j & 3;
    lo[j] = block + (in >> 1) + ((in & 1) ? LANES : 0);
    hi[j] = block + 2 + (in >> 1) + ((in & 1) ? LANES : 0);
    lo2[j] = block + (in & 1) + ((in & 2) ? LANES : 0);
    hi2[j] = block + 2 + (in & 1) + ((in & 2) ? LANES : 0);
  }
  const V a = __builtin_shuffle(r[0], r[1], lo), b = __builtin_shuffle(r[0], r[1], hi);
  const V c = __builtin_shuffle(r[2], r[3], lo), d = __builtin_shuffle(r[2], r[3], hi);
  r[0] = __builtin_shuffle(a, c, lo2);
  r[1] = __builtin_shuffle(a, c, hi2);
  r[2] = __builtin_shuffle(b, d, lo2);
  r[3] = __builtin_shuffle(b, d, hi2);
}
#endif

// Inside 128-bit blocks first, then whole blocks.
static inline void transpose(V* r) {
#if RF_DOUBLE
  for (int i = 0; i < LANES; i += 2) swap_blocks<1>(r[i], r[i + 1]);
  if (LANES >= 4)
    for (int i = 0; i < LANES; ++i)
      if (!(i & 2)) swap_blocks<2>(r[i], r[i + 2]);
#else
  for (int i = 0; i < LANES; i += 4) transpose_blocks(r + i);
#endif
  if (LANES >= 8)
    for (int i = 0; i < LANES; ++i)
      if (!(i & 4)) swap_blocks<(LANES >= 8 ? 4 : 1)>(r[i], r[i + (LANES >= 8 ? 4 : 0)]);
  if (LANES >= 16)
    for (int i = 0; i < LANES; ++i)
      if (!(i & 8)) swap_blocks<(LANES >= 16 ? 8 : 1)>(r[i], r[i + (LANES >= 16 ? 8 : 0)]);
}

// out[j][l] = rows[l][j] for LANES rows of LANES elements in memory. Where rows are read anyway,
// 128-bit pieces of different rows can be joined while loading, which leaves half of the shuffles.
// (Not so with 512-bit registers: there such a join is a shuffle itself.)
#if defined(RF_X86) && !RF_DOUBLE && RF_BYTES == 32
static inline V join(const S* const* rows, int at) {
  const __m256 v = _mm256_castps128_ps256(_mm_loadu_ps(rows[0] + at));
  return (V)_mm256_insertf128_ps(v, _mm_loadu_ps(rows[4] + at), 1);
}
static inline void transpose_rows(const S* const* rows, V* out) {
  for (int block = 0; block < LANES; block += 4) {
    for (int i = 0; i < 4; ++i) out[block + i] = join(rows + i, block);
    transpose_blocks(out + block);
  }
}
#else
static inline void transpose_rows(const S* const* rows, V* out) {
  for (int l = 0; l < LANES; ++l) out[l] = *(const VU*)rows[l];
  transpose(out);
}
#endif

static inline void transpose_rows(const Other* const* rows, V* out) {
  for (int l = 0; l < LANES; ++l) out[l] = load_as_compute(rows[l]);
  transpose(out);
}

// A bump allocator over the scratch that the caller owns.
struct Arena {
  char* at;
  template <class T>
  T* take(size_t n) {
    T* p = (T*)at;
    at += (n * sizeof(T) + 63) & ~(size_t)63;
    return p;
  }
};
