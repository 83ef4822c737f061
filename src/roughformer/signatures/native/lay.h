// Columns of a table -> rows of a batch, and what is to be seen on the way.
#pragma once
#include "abi.h"

#if RF_DOUBLE
using Bits = uint64_t;
constexpr Bits kSign = (Bits)1 << 63, kUlpOfExponent = (Bits)1 << 52;
#else
using Bits = uint32_t;
constexpr Bits kSign = (Bits)1 << 31, kUlpOfExponent = (Bits)1 << 23;
#endif

// memcpy to memory that is not read soon. Stores that go past the caches do not fetch the lines
// that they overwrite, which is half of the way between a core and its memory; two processes share
// that way.
static void past_caches(void* to, const void* from, size_t bytes) {
#ifdef __SSE2__
  constexpr size_t kLine = 64;
  char* out = (char*)to;
  const char* in = (const char*)from;
  const size_t head = -(uintptr_t)out % kLine;
  if (bytes >= head + kLine) {
    memcpy(out, in, head);
    out += head, in += head, bytes -= head;
    for (; bytes >= kLine; out += kLine, in += kLine, bytes -= kLine)
      for (size_t k = 0; k < kLine; k += sizeof(__m128i))
        _mm_stream_si128((__m128i*)(out + k), _mm_loadu_si128((const __m128i*)(in + k)));
  }
  memcpy(out, in, bytes);
#else
  memcpy(to, from, bytes);
#endif
}

// Rows a ... b-1 of C columns side by side into the rows a ... of `out`; C = 0: of as many columns
// as `channels` says. Few columns go by way of `near`, which the first cache holds.
template <int C>
static void side_by_side(const void* const* columns, int64_t channels, int64_t a, int64_t b,
                         S* __restrict near, S* __restrict out) {
  if constexpr (C > 0) {
    const S* column[C];
    for (int c = 0; c < C; ++c) column[c] = (const S*)columns[c] + a;
    for (int64_t i = 0; i < b - a; ++i)
      for (int c = 0; c < C; ++c) near[i * C + c] = column[c][i];
    past_caches(out + a * C, near, (b - a) * C * sizeof(S));
  } else {
    for (int64_t c = 0; c < channels; ++c) {
      const S* column = (const S*)columns[c];
      for (int64_t i = a; i < b; ++i) out[i * channels + c] = column[i];
    }
  }
}

// A few hundred rows at a time stay in the first cache while they are looked at and laid down.
static void lay(RfLay* job) {
  constexpr int64_t kRows = 512;
  S near[4 * kRows];
  const int64_t n = job->n_rows, C = job->channels;
  S* out = (S*)job->values_out;
  const double* t = job->times;
  const void* const* columns = job->columns;
  int64_t falls = 0;
  Bits odd = 0;  // its sign: an exponent was all ones
  uint64_t wild = 0;  // likewise, of the times
  for (int64_t a = 0; a < n; a += kRows) {
    const int64_t b = a + kRows < n ? a + kRows : n, first = a > 0 ? a : 1;
    past_caches(job->times_out + a, t + a, (b - a) * sizeof(double));
    const uint64_t* stamps = (const uint64_t*)t;
    for (int64_t i = a; i < b; ++i) wild |= (stamps[i] & ~(1ull << 63)) + (1ull << 52);
    int64_t rises = 0;
    for (int64_t i = first; i < b; ++i) rises += t[i] > t[i - 1];
    falls += (b - first) - rises;
    for (int64_t c = 0; c < C; ++c) {
      const Bits* bits = (const Bits*)columns[c];
      for (int64_t i = a; i < b; ++i) odd |= (bits[i] & ~kSign) + kUlpOfExponent;
    }
    switch (C) {
      case 1: side_by_side<1>(columns, C, a, b, near, out); break;
      case 2: side_by_side<2>(columns, C, a, b, near, out); break;
      case 3: side_by_side<3>(columns, C, a, b, near, out); break;
      case 4: side_by_side<4>(columns, C, a, b, near, out); break;
      default: side_by_side<0>(columns, C, a, b, near, out);
    }
  }
#ifdef __SSE2__
  _mm_sfence();  // another thread may read the rows next
#endif
  job->falls = falls;
  job->unbounded = wild >> 63;
  job->missing = job->infinite = 0;
  if (!(odd & kSign)) return;
  for (int64_t i = 0; i < n * C; ++i) {
    job->missing |= out[i] != out[i];
    job->infinite |= out[i] == out[i] && out[i] - out[i] != 0;
  }
}
