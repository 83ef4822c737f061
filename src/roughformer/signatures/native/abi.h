// The C interface between Python (ctypes) and the kernel: plain data, fixed sizes, no ownership.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {

enum { RF_F32 = 0, RF_F64 = 1 };
enum { RF_GLOBAL = 1, RF_LOCAL = 2 };

// The logarithm in Lyndon coordinates as a table: for each Lyndon word i,
//   out[i] = sum over its terms of coef * prod S[factor],
// then, for the bracket basis, out[fix_dst] += fix_coef * out[fix_src], in order.
struct RfLog {
  int64_t n_out;
  const int64_t* term_ptr;    // (n_out + 1) terms of each word
  const double* coef;         // (n_terms)
  const int64_t* factor_ptr;  // (n_terms + 1) factors of each term
  const int32_t* factor;      // indices of words
  int64_t n_fix;
  const int32_t* fix_dst;
  const int32_t* fix_src;
  const double* fix_coef;
};

// One call: the tokens of every series of a ragged batch. Rows are points, C values each.
struct RfJob {
  const void* values;          // (n_rows, channels), value_dtype
  const double* times;         // (n_times)
  const int64_t* starts;       // (B) first row of a series
  const int64_t* lengths;      // (B) its number of points, >= 1
  const int64_t* time_starts;  // (B) where its times begin (all 0 when a grid is shared)
  const double* cuts;          // cut times, ascending
  const int64_t* cut_starts;   // (B) where its cuts begin
  const double* cut_shift;     // (B) added to them: time since the series' first point
  const int64_t* n_windows;    // (B) its number of windows; it has one cut more
  const double* time_scale;    // (B) channel 0 is (t - t_0) * scale; null: no time channel
  const uint8_t* keep;         // (n_rows) 0 = dropped; null: all kept
  const uint32_t* keys;        // (B) keys of the random thinning (dropping.py); null: none
  void* out;                   // tokens
  const int64_t* out_starts;   // (B) element where a series' tokens begin
  const void* grad_out;        // backward: dL/dout, laid out as out
  void* grad_values;           // backward: (n_rows, channels), compute dtype, added to
  const RfLog* log;            // null: signature; else log-signature
  int64_t n_rows, n_times, n_series;
  int64_t token_stride;        // elements from a token to the next of the same series
  int64_t global_at, local_at; // where in a token the views stand
  double drop;                 // fraction for keys
  int32_t value_dtype, compute_dtype, out_dtype;
  int32_t channels, depth, views;
  int32_t basepoint;           // RF_GLOBAL | RF_LOCAL: views that start from the origin
  int32_t uniform;             // all series share times, length and cuts, and nothing is dropped
  int32_t threads;
};

// Clock words of the windows of B series, which have as many each.
struct RfClock {
  const void* values;       // rows of `channels`
  const double* times;
  const int64_t* starts;    // (B) first point of the series in values
  const int64_t* lengths;   // (B)
  const int64_t* time_starts;  // (B) and in times
  const double* since;      // (B, n_windows + 1) edges, from the first point of the series
  const double* turns;      // (n_frequencies, padded by 16 zeros) turns per unit of time
  void* out;                // (channels, n_frequencies, 2) words at series_stride, window_stride
  int64_t n_series, n_windows, n_frequencies;
  int64_t series_stride, window_stride;
  double fastest;           // the largest |turns|
  int32_t local;            // the clock starts with each window, not with the first
  int32_t per_duration;     // turns are per duration of the window (local), or of all windows
  int32_t value_dtype, compute_dtype, out_dtype, channels, threads;
};

// Values without gaps: each channel linear in time between its observations (not NaN, kept).
struct RfFill {
  const void* values;          // (n_rows, channels)
  void* out;                   // the same
  uint8_t* never;              // (B, channels) set to 1 where a channel is never observed
  const double* times;
  const int64_t* starts;
  const int64_t* lengths;
  const int64_t* time_starts;
  const uint8_t* keep;         // (n_rows) or null
  int64_t n_series;
  int32_t dtype, channels, threads;
};

// Which points a random thinning keeps (dropping.py), as bytes.
struct RfThin {
  const uint32_t* keys;        // (B)
  const int64_t* starts;       // (B)
  const int64_t* lengths;      // (B)
  uint8_t* keep;               // (n_rows) 1 = kept
  int64_t n_series;
  double drop;
  int32_t threads;
};

// Paths onto even grids, ready for a real FFT; see spectrum.h. Times count from the first point.
struct RfSpread {
  const void* values;          // (n_rows, channels), without NaN
  const double* times;
  const int64_t* starts;       // (B) as in RfJob
  const int64_t* lengths;
  const int64_t* time_starts;
  const uint8_t* keep;         // (n_rows) or null
  const uint32_t* keys;        // (B) or null
  const double* step;          // (degree + 1, 8 + width + 8) polynomials of the smoothed step
  const double* bump;          // the same shape: its derivative
  const double* weight;        // (n_nodes) factors of the nodes; null: none
  void* out;                   // (B, channels, n_grid)
  int64_t n_series, n_grid, n_nodes;
  int64_t first;               // where node 0 goes
  double drop, nodes_per_time;
  int32_t degree, width;       // width 8 or 16
  int32_t value_dtype, out_dtype, channels, threads;
};

// Spectra read between their frequencies; see spectrum.h.
struct RfBetween {
  const void* spectrum;        // (n_rows, n_spectrum) complex
  const int64_t* first;        // (J) first frequency read, may be negative
  const double* weights;       // (J, width, 2) each weight twice
  const double* factor;        // (J) complex
  void* out;                   // (n_rows, J) complex
  int64_t n_rows, n_spectrum, n_frequencies;
  int32_t dtype, width, threads;
};

// Levels (means) and increments of the piecewise-linear paths over even cells of each span.
struct RfCells {
  const void* values;          // (n_rows, channels), NaN = not observed
  const double* times;
  const int64_t* starts;       // (B) as in RfJob
  const int64_t* lengths;
  const int64_t* time_starts;
  double* out;                 // (B, 2 * channels, n_cells): levels, then increments
  int64_t n_series, n_cells;
  double least_span;           // cells are of this span where a series' own is shorter
  int32_t value_dtype, channels, threads;
};

// Functionals of cells, pooled over time; see functionals.h.
struct RfFunctionals {
  const double* cells;         // (B, n_rows, n_cells)
  const int64_t* widths;       // (n_scales) cells of a tap
  const uint8_t* padded;       // (n_scales) whether windows reach over the ends
  const int64_t* mix_at;       // (n_scales * n_groups + 1) where the mixture of a group begins
  const int64_t* mix_row;      // its rows
  const double* mix;           // and their weights
  const float* taps;           // (n_scales * n_groups * 8, n_taps) whole numbers
  const float* thresholds;     // (n_scales * n_groups * 8, n_thresholds)
  float* ppv;                  // (B, n_scales * n_groups * 8 * n_thresholds)
  float* mpv;                  // the same
  float* mipv;                 // the same
  float* wins;                 // (B, 2, n_scales * n_groups * 8)
  int64_t n_series, n_rows, n_cells, n_scales, n_groups, n_taps, n_thresholds;
  double most;                 // largest whole number of a moving average
  int32_t threads;
};

// Tokens of streams, row by row; see step.h. What a stream remembers is its row of each array, with
// a null pointer for what it does not need: C channels, W words of a signature, F frequencies.
struct RfStep {
  double *start, *time, *opened, *window, *points;  // (n)
  double* held;                // (n, C)
  double *local, *begin;       // (n, W), (n, C): the open window
  double* clocks;              // (n, C, 2, F): its clock words
  double *whole, *first;       // (n, W), (n, C): all windows before it, or
  double *rings, *starts;      // (n, 2 * blocks - 1, W), (n, context, C): those of a context
  double *seen, *past;         // (n, 12, C): observations in the open window, and before it
  double* recent;              // (n, 4, ring, C): in each of the last windows
  const double* turns;         // (F, padded by 16 zeros) turns per unit of time
  const double* range;         // (4, C): lowest, highest, mean and scale of observed values
  const int64_t* slots;        // (n_slots) streams that go on, each once
  const int64_t* offsets;      // (n_slots + 1) their rows; null: none, tell of the open windows
  const double* times;         // (n_rows)
  const double* values;        // (n_rows, C), NaN where not observed
  double* out;                 // (room, width) tokens of the windows that end, stream by stream
  double* ends;                // (room) and when they end, from the stream's first point on
  int64_t n_slots, room, width;
  int64_t next, next_row;      // in: where to begin in slots and rows; out: where there was no room
  int64_t global_at, local_at, clock_at;        // where in a token the parts stand; -1: nowhere
  int64_t seen_global_at, seen_local_at;
  int64_t n_frequencies, context, ring, recent_windows, points_each;
  double duration;             // of a window; 0: windows of points_each points
  double time_scale;           // of the channel of time; 0: none
  double time_unit, fastest;   // of slopes; the largest |turns|
  int32_t channels, depth, basepoint;
};

// Many running signatures, one per stream; see stream.h.
struct RfStream {
  void* state;  // rf_stream_bytes() of zeros at first
  int64_t n_streams;
  int32_t dim, depth, dtype;
};

}  // extern "C"

// What one instruction set offers; every member works on one group of `lanes` series or streams.
struct RfKernel {
  int lanes;
  size_t (*scratch_bytes)(const RfJob*, int64_t max_rows, int64_t max_windows, int backward);
  void (*forward)(const RfJob*, const int64_t* members, int count, void* scratch);
  void (*backward)(const RfJob*, const int64_t* members, int count, void* scratch);
  size_t (*stream_group_bytes)(int dim, int depth);
  void (*stream_push)(void* group, int dim, int depth, const void* points, int64_t stride,
                      const uint8_t* active, int count);
  void (*stream_read)(const void* group, int dim, int depth, int views, void* out,
                      int64_t stride, int count);
  size_t (*clock_bytes)(const RfClock*);
  void (*clock)(const RfClock*, int64_t series, int64_t window, void* scratch);
  void (*stream_close)(void* group, int dim, int depth, const uint8_t* which, int count);
  void (*thin_bytes)(const RfThin*, int64_t first, int count, uint32_t* scratch, int64_t words);
  // Single precision only; null in the kernels of double:
  size_t (*functionals_bytes)(const RfFunctionals*);
  void (*functionals)(const RfFunctionals*, int64_t series, void* scratch);
  // Double precision only; null in the kernels of float:
  size_t (*spread_bytes)(const RfSpread*, int64_t longest);
  void (*spread)(const RfSpread*, int64_t first, int count, int64_t longest, void* scratch);
  void (*between)(const RfBetween*, int64_t row);
  size_t (*step_bytes)(const RfStep*);
  int64_t (*step)(RfStep*, void* scratch);
};
